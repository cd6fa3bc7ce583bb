"use strict";
// Shows the groups of the page's data. All that comes from documents becomes text, never markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const app = document.getElementById("app");
  const store = `fpdb-${data.name}`;
  const unspaced = (lang) => lang === "zh" || lang === "ja";
  let verdicts = {}, beside = matchMedia("(min-width: 701px)").matches, at = -1;
  try { verdicts = JSON.parse(localStorage.getItem(store)) || {}; } catch { /* nothing is kept */ }

  function make(name, properties = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
      if (key === "class") made.className = value;
      else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) {
        made.setAttribute(key, value === true ? "" : value);
      }
    }
    made.append(...children.flat(Infinity));
    return made;
  }
  const button = (text, onclick, properties = {}) =>
    make("button", { type: "button", onclick, ...properties }, text);
  const visible = (text) => String(text).replace(/[\p{C}\u2028\u2029]/gu, (sign) =>
    `⟦U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟧`);
  const count = (number, noun, many) =>
    `${number.toLocaleString("en")} ${number === 1 ? noun : many || `${noun}s`}`;

  // The texts of a pair, in rows that begin after equal passages. Both cells of a row have all of
  // it, and the style hides what is only in the other text, or the second cell.
  function drawn(version, lang) {
    const box = make("div");
    let into = box, row = [];
    const cell = (content, language) =>
      make("div", { class: "text", lang: language || "", dir: "auto" }, content);
    function close() {
      const copy = row.map((part) => part.cloneNode?.(true) ?? part);
      if (row.length) into.append(make("div", { class: "row" }, cell(row, lang), cell(copy, version.lang)));
      row = [];
    }
    function equal(text) {
      for (const line of text.split(/(?<=\n)/)) {
        if (/\S|[^\n]$/.test(line)) row.push(line);
        if (line.endsWith("\n")) close();
      }
    }
    function note(text) {
      close();
      into.append(make("p", { class: "fold" }, text));
    }
    const [LONG, EDGE] = unspaced(lang) ? [180, 70] : [360, 140];
    version.d.forEach((piece, place) => {
      const last = place === version.d.length - 1;
      if (Array.isArray(piece)) {
        ["del", "ins"].forEach((name, side) =>
          piece[side] && row.push(make(name, {}, piece[side].replace(/\n\s*\n/g, "\n"))));
        if (piece.some((side) => /\n\s*$/.test(side))) close();
      } else if (typeof piece === "number") {
        note(`${count(piece, `${last ? "further" : "equal"} character`)} left out here, to keep this file small`);
      } else {
        const from = place === 0 ? 0 : cut(piece, EDGE);
        const to = last ? piece.length : cut(piece, piece.length - EDGE);
        if (to - from < LONG) return equal(piece);
        equal(piece.slice(0, from));
        close();
        const middle = piece.slice(from, to);
        const units = unspaced(lang) ? count([...middle].length, "equal character")
          : count(middle.trim().split(/\s+/).length, "equal word");
        into = make("details", { class: "folded" }, make("summary", {}, `⋯ ${units} ⋯`));
        equal(middle);
        close();
        box.append(into);
        into = box;
        equal(piece.slice(to));
      }
    });
    close();
    if (version.rest) note(`${count(version.rest, "character")} at the end weren't compared`);
    return box;
  }
  // A place after white space near to a place.
  const cut = (text, place) =>
    Math.min(text.length, place + text.slice(place, place + 30).search(/\s/) + 1);

  function names(version, heading) {
    const shown = version.k.map((key) => make("span", { class: "name", dir: "auto" }, visible(key)));
    const rest = shown.splice(5), box = make("div", {}, make("b", {}, heading), shown);
    const unnamed = version.n - version.k.length;
    const more = unnamed > 0 ? `and ${count(unnamed, "further document")} with this text` : "";
    if (rest.length) {
      box.append(make("details", {}, make("summary", {}, `${count(version.n - 5, "more document")}`),
        rest, more));
    } else if (more) box.append(make("span", { class: "soft" }, more));
    return box;
  }
  const heading = (version, role) =>
    version.n > 1 ? `${role}: ${count(version.n, "identical document")}` : role;

  class Group {
    constructor(view, number) {
      this.view = view;
      this.number = number;
      this.version = view.v.length > 1 ? 1 : 0;
      this.words = [view.t, ...view.v.flatMap((version) => version.k)].join("\n").toLowerCase();
      this.marks = make("span", { class: "marks" });
      this.head = make("button", { class: "head", type: "button", "aria-expanded": "false",
        onclick: () => { move(this); this.toggle(); } },
        make("span", { class: "share" }, view.share),
        make("span", { class: "title", lang: view.lang, dir: "auto" }, view.t || "(no title)"),
        make("span", { class: "size" }, this.size()),
        make("span", { class: "keys" }, view.v.map((version) => visible(version.k[0] ?? "?")).join(" · ")),
        this.marks);
      this.box = make("article", { class: `group ${view.kind}` }, make("h3", {}, this.head));
      this.showMarks();
    }
    size() {
      if (this.view.label) return this.view.label;
      const copies = count(this.view.n, "document");
      const texts = this.view.v.length + this.view.more;
      return texts > 1 && texts < this.view.n ? `${copies}, ${texts} texts` : copies;
    }
    name(version) { return `${this.number}:${version}`; }
    showMarks() {
      const given = this.view.v.map((_, place) => verdicts[this.name(place)]).filter(Boolean);
      this.marks.replaceChildren(this.view.chain ? make("span", { class: "tag" }, "chain") : "",
        given.length ? ` ✓ ${[...new Set(given)].join(", ")}` : "");
      this.judged = given.length > 0;
    }
    toggle(open = !this.body) {
      if (this.body) this.body.remove();
      this.body = open ? make("div", { class: "body" }) : null;
      this.head.setAttribute("aria-expanded", String(open));
      this.box.classList.toggle("open", open);
      if (open) { this.box.append(this.body); this.show(); }
    }
    show() {
      const { view } = this, kept = view.v[0], version = view.v[this.version];
      const parts = [];
      if (view.chain) {
        parts.push(make("p", { class: "warn" }, "A chain: not all of these documents are near-duplicates of "
          + `the kept one; the least similar is ${view.share} similar. Documents between them connect them.`));
      }
      if (view.v.length > 2) {
        parts.push(make("div", { class: "tabs", role: "group", "aria-label": "Compare the kept text with" },
          make("span", { class: "soft" }, "Compare the kept text with"),
          view.v.slice(1).map((other, place) => button(
            `${place + 1}${other.share === undefined ? "" : `: ${other.share}`}`,
            () => this.choose(place + 1), { "aria-pressed": String(place + 1 === this.version) })),
          view.more ? make("span", { class: "soft" }, `${count(view.more, "further text")} left out`) : ""));
      }
      if (this.version === 0) parts.push(make("div", {}, names(kept, heading(kept, "Kept and copies"))));
      else {
        parts.push(make("div", { class: "names" }, names(kept, heading(kept, view.left || "Kept")),
          names(version, heading(version, view.right || "Near-duplicate"))));
      }
      if (kept.x !== undefined) {
        parts.push(make("p", { class: "facts" }, `${count(view.n, "document")} with exactly this text:`),
          make("div", { class: "text", lang: kept.lang, dir: "auto" }, kept.x));
        if (kept.r > 0) parts.push(make("p", { class: "fold" }, count(kept.r, "further character")));
      } else if (version.d) parts.push(...this.compared(kept, version));
      else parts.push(make("p", { class: "warn" }, "The texts weren't found in the sources, or have changed."));
      this.body.replaceChildren(...parts.flat());
    }
    compared(kept, version) {
      const details = [...version.facts, ...(this.view.facts || []),
        ["read at", [...kept.src, ...version.src].filter(Boolean).join(" and ")]];
      const verdict = verdicts[this.name(this.version)];
      const unsaved = kept.cut || version.cut ? " (not saved: a key is too long)" : "";
      const texts = drawn(version, kept.lang ?? version.lang);
      const fold = button("Show all", () => {
        const folds = [...texts.querySelectorAll(".folded")], open = folds.some((each) => !each.open);
        for (const each of folds) each.open = open;
        fold.textContent = open ? "Fold equal passages" : "Show all";
      });
      return [make("p", { class: "facts" }, version.say),
        make("div", { class: "verdict" }, make("span", { class: "soft" },
          (verdict ? `Your verdict: ${verdict}` : "Are they the same?") + unsaved),
          ["same", "different", "unsure"].map((word) =>
            button(word[0].toUpperCase() + word.slice(1), () => this.judge(word),
              { "aria-pressed": String(verdict === word) })),
          make("span", { class: "spread" }), fold,
          button(beside ? "As one text" : "Side by side", () => { beside = !beside; redraw(); })),
        texts, make("details", {}, make("summary", {}, "Details"), make("dl", {},
          details.filter(([, value]) => value)
            .flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])))];
    }
    choose(version) {
      if (version < 1 || version >= this.view.v.length) return;
      this.version = version;
      this.show();
    }
    judge(word) {
      if (!this.body || !this.version) return;
      const name = this.name(this.version);
      if (verdicts[name] === word) delete verdicts[name];
      else verdicts[name] = word;
      try { localStorage.setItem(store, JSON.stringify(verdicts)); } catch { /* nothing is kept */ }
      this.show();
      this.showMarks();
      showExport();
    }
  }

  const groups = data.groups.map((view, number) => new Group(view, number));
  function redraw() {
    app.className = beside ? "" : "one";
    groups.forEach((group) => group.body && group.show());
  }
  const option = (value, text) => make("option", { value }, text);
  const least = Math.min(Math.floor(100 * data.similarity),
    ...data.groups.map((view) => Math.floor(100 * view.low)));
  const search = make("input", { type: "search", placeholder: "Search keys and titles", "aria-label": "Search keys and titles" });
  const from = make("input", { type: "number", min: 0, max: 100, value: least, "aria-label": "Least similarity in percent" });
  const to = make("input", { type: "number", min: 0, max: 100, value: 100, "aria-label": "Largest similarity in percent" });
  const kind = make("select", {}, option("", "all"), Object.entries(data.kinds).map(([value, text]) => option(value, text)));
  const order = make("select", {}, option("given", "least similar first"), option("similar", "most similar first"),
    option("large", "largest first"), option("title", "by title"));
  const shown = make("span", { class: "total", role: "status" });
  const save = button("", exported);
  const list = make("div", { id: "list" });
  const collator = new Intl.Collator();
  const orders = {
    given: (one, other) => one.number - other.number,
    similar: (one, other) => other.view.low - one.view.low || one.number - other.number,
    large: (one, other) => other.view.n - one.view.n || one.number - other.number,
    title: (one, other) => collator.compare(one.view.t, other.view.t),
  };
  const kinds = {
    chain: (group) => group.view.chain !== undefined,
    open: (group) => group.view.v.length > 1 && !group.judged,
  };
  let current = [];
  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const low = from.value === "" ? 0 : Number(from.value), high = to.value === "" ? 100 : Number(to.value);
    const wanted = kinds[kind.value] || ((group) => !kind.value || group.view.kind === kind.value);
    const chosen = at >= 0 ? current[at] : null;
    current = groups.filter((group) => {
      const share = Math.floor(group.view.low * 100 + 1e-9);
      return share >= low && share <= high && wanted(group) && words.every((word) => group.words.includes(word));
    }).sort(orders[order.value]);
    list.replaceChildren(...current.map((group) => group.box));
    at = chosen ? current.indexOf(chosen) : -1;
    shown.textContent = current.length === groups.length ? count(groups.length, data.noun)
      : `${current.length.toLocaleString("en")} of ${count(groups.length, data.noun)}`;
  }
  function move(group) {
    list.querySelector(".at")?.classList.remove("at");
    at = current.indexOf(group);
    if (!group) return;
    group.box.classList.add("at");
    group.box.scrollIntoView({ block: "nearest" });
    group.head.focus({ preventScroll: true });
  }

  const judged = () => groups.flatMap((group) => group.view.v.slice(1).map((version, place) =>
    group.view.v[0].cut || version.cut ? [] : [group.view.v[0].k[0], version.k[0], verdicts[group.name(place + 1)]])).filter((row) => row[2]);
  function showExport() {
    const number = judged().length;
    save.textContent = number ? `Save ${count(number, "verdict")}` : "Save verdicts";
    save.disabled = !number;
    save.title = "As pairs.csv, which fpdb eval takes; pairs that you are unsure about are left out";
  }
  function exported() {
    const quoted = (text) => `"${String(text).replaceAll('"', '""')}"`;
    const rows = judged().filter(([, , word]) => word !== "unsure")
      .map(([one, other, word]) => [quoted(one), quoted(other), word === "same" ? 1 : 0]);
    const lines = [["key", "other", "same"], ...rows].map((row) => `${row.join(",")}\n`);
    const url = URL.createObjectURL(new Blob(lines, { type: "text/csv" }));
    make("a", { href: url, download: "pairs.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }

  const keys = {
    j: () => move(current[Math.min(at + 1, current.length - 1)]),
    k: () => move(current[Math.max(at - 1, 0)]),
    o: () => current[at]?.toggle(),
    n: () => current[at]?.body && current[at].choose(current[at].version + 1),
    p: () => current[at]?.body && current[at].choose(current[at].version - 1),
    s: () => current[at]?.judge("same"),
    d: () => current[at]?.judge("different"),
    u: () => current[at]?.judge("unsure"),
    "/": () => search.focus(),
    "?": () => { help.open = !help.open; },
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") return document.activeElement?.blur();
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    keys[event.key]();
  });
  const explained = [["j", "k", "next and previous group"], ["o", "open or close it"],
    ["n", "p", "next and previous text in it"], ["s", "d", "u", "same, different, unsure"], ["/", "search"]];
  const help = make("details", { class: "help" }, make("summary", {}, "Keyboard"),
    explained.map((entry) => make("span", {}, entry.slice(0, -1).map((key) => [make("kbd", {}, key), " "]),
      `${entry.at(-1)}; `)), "a further press of a verdict takes it back.");

  for (const control of [search, from, to, kind, order]) control.addEventListener("input", filter);
  if (groups.length) {
    app.append(make("div", { class: "tools" }, make("label", { class: "search" }, search),
      make("label", {}, "Show", kind), make("label", {}, "Similarity", from, "to", to, "%"),
      make("label", {}, "Sort", order), save, shown), help, list);
    redraw();
    showExport();
    filter();
  }
})();
