"use strict";
// Shows the groups of the page's data. All that comes from documents becomes text, never markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const app = document.getElementById("app");
  const store = `fpdb-${data.name}`;
  const LONG = 360, EDGE = 140;
  const wide = matchMedia("(min-width: 701px)");
  const unspaced = (lang) => lang === "zh" || lang === "ja";
  let verdicts = {}, beside = wide.matches, at = -1;
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
    made.append(...children.flat());
    return made;
  }
  const visible = (text) => String(text).replace(/[\p{C}\u2028\u2029]/gu, (sign) =>
    `⟦U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟧`);
  const count = (number, noun, many) =>
    `${number.toLocaleString("en")} ${number === 1 ? noun : many || `${noun}s`}`;
  function percent(share) {
    if (share > 0 && share < 0.001) return "<\u00a00.1\u00a0%";
    const digits = share === 0 || share === 1 || (share >= 0.005 && share < 0.995) ? 0 : 1;
    return `${(digits ? Math.min(share * 100, 99.9) : share * 100).toFixed(digits)}\u00a0%`;
  }

  // The texts of a pair, beside each other or as one, in rows that begin after equal passages.
  function drawn(version, lang, unfolded) {
    const box = make("div", { class: beside ? "two" : "one" });
    let left = [], right = [];
    const cell = (content, language) =>
      make("div", { class: "text", lang: language || "", dir: "auto" }, content);
    function close() {
      if (!left.length && !right.length) return;
      if (beside) box.append(make("div", { class: "row" }, cell(left, lang), cell(right, version.lang)));
      else box.append(cell(left, lang));
      left = []; right = [];
    }
    function equal(text) {
      for (const line of text.split(/(?<=\n)/)) {
        if (!line) continue;
        if (line.trim() || !line.endsWith("\n")) {
          left.push(line);
          if (beside) right.push(line);
        }
        if (line.endsWith("\n")) close();
      }
    }
    function change([one, other]) {
      const mark = (side, name, text) => {
        const bare = text.trimEnd();
        if (text) side.push(make(name, {}, bare.replace(/\n\s*\n/g, "\n")),
          text.slice(bare.length).replace(/\n\s*/, "\n"));
      };
      mark(left, "del", one);
      mark(beside ? right : left, "ins", other);
      if (/\n\s*$/.test(one) || /\n\s*$/.test(other)) close();
    }
    function note(text) {
      close();
      box.append(make("p", { class: "fold" }, text));
    }
    const pieces = version.d;
    pieces.forEach((piece, place) => {
      if (Array.isArray(piece)) return change(piece);
      if (typeof piece === "number") {
        const last = place === pieces.length - 1;
        return note(last
          ? `${count(piece, "further character")} left out here, to keep this file small`
          : `${count(piece, "equal character")} left out here, to keep this file small`);
      }
      const edge = unspaced(lang) ? EDGE / 2 : EDGE;
      const from = place === 0 ? 0 : cutAfter(piece, edge);
      const to = place === pieces.length - 1 ? piece.length : cutBefore(piece, piece.length - edge);
      if (unfolded || to - from < (unspaced(lang) ? LONG / 2 : LONG)) return equal(piece);
      equal(piece.slice(0, from));
      close();
      const middle = piece.slice(from, to);
      const units = unspaced(lang) ? count([...middle].length, "equal character")
        : count(middle.trim().split(/\s+/).length, "equal word");
      box.append(make("button", {
        class: "fold", type: "button", title: "Show this passage",
        onclick: (event) => {
          const shown = drawn({ ...version, d: [middle] }, lang, true);
          event.currentTarget.replaceWith(...shown.childNodes);
        },
      }, `⋯ ${units} ⋯`));
      equal(piece.slice(to));
    });
    close();
    if (version.rest) note(`${count(version.rest, "character")} at the end weren't compared`);
    return box;
  }
  function cutAfter(text, place) {
    const space = text.slice(place, place + 30).search(/\s/);
    return Math.min(text.length, space < 0 ? place : place + space + 1);
  }
  function cutBefore(text, place) {
    const space = text.slice(Math.max(place - 30, 0), Math.max(place, 0)).search(/\s/);
    return Math.max(0, space < 0 ? place : Math.max(place - 30, 0) + space + 1);
  }

  function names(version, heading) {
    const shown = version.k.slice(0, 5), rest = version.k.slice(5);
    const box = make("div", {}, make("b", {}, heading),
      shown.map((key) => make("span", { class: "name", dir: "auto" }, visible(key))));
    const unnamed = version.n - version.k.length;
    const more = unnamed > 0 ? `and ${count(unnamed, "further document")} with this text` : "";
    if (rest.length) {
      box.append(make("details", {}, make("summary", {}, `${count(version.n - 5, "more document")}`),
        rest.map((key) => make("span", { class: "name", dir: "auto" }, visible(key))), more));
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
      this.folded = true;
      this.words = [view.t, ...view.v.flatMap((version) => version.k)].join("\n").toLowerCase();
      this.marks = make("span", { class: "marks" });
      this.head = make("button", { class: "head", type: "button", "aria-expanded": "false",
        onclick: () => { move(this); this.toggle(); } },
        make("span", { class: "share" }, view.kind === "identical" ? "same" : percent(view.low)),
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
          + `the kept one; the least similar is ${percent(view.chain)} similar. Documents between them connect them.`));
      }
      if (view.v.length > 2) {
        parts.push(make("div", { class: "tabs", role: "group", "aria-label": "Compare the kept text with" },
          make("span", { class: "soft" }, "Compare the kept text with"),
          view.v.slice(1).map((other, place) => make("button", { type: "button",
            "aria-pressed": String(place + 1 === this.version), class: place + 1 === this.version ? "" : "plain",
            onclick: () => this.choose(place + 1) },
            `${place + 1}${other.s === undefined ? "" : `: ${percent(other.s)}`}`)),
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
      const what = unspaced(version.lang) ? "characters" : "words";
      const [own, others] = version.only;
      const first = view => view.left ? "first" : "kept";
      let sentence = `${percent(version.s)} similar. `;
      if (!version.d.some(Array.isArray)) sentence += "The same words in the same order; only white space differs.";
      else {
        sentence += `${percent(own)} of the ${what} on the left are only in the ${first(this.view)} text, `
          + `${percent(others)} of those on the right only in the other one.`;
      }
      if (!beside) sentence = sentence.replace(" on the left", "").replace(" of those on the right", "");
      const facts = make("details", {}, make("summary", {}, "Details"), make("dl", {},
        ...[["similarity", version.s.toFixed(4)], ["containment", `${version.in.toFixed(4)} of the smaller text`],
          ...(this.view.facts || []), ["characters", version.size.map((size) => size.toLocaleString("en")).join(" and ")],
          ["read at", [...kept.src, ...version.src].filter(Boolean).join(" and ")]]
          .filter(([, value]) => value)
          .flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])));
      const verdict = verdicts[this.name(this.version)];
      const unsaved = kept.cut || version.cut ? " (not saved: a key is too long)" : "";
      const buttons = ["same", "different", "unsure"].map((word) => make("button", { type: "button",
        "aria-pressed": String(verdict === word), onclick: () => this.judge(word) },
        word[0].toUpperCase() + word.slice(1)));
      return [make("p", { class: "facts" }, sentence),
        make("div", { class: "verdict" }, make("span", { class: "soft" },
          (verdict ? `Your verdict: ${verdict}` : "Are they the same?") + unsaved), buttons, make("span", { class: "spread" }),
        make("button", { type: "button", onclick: () => { this.folded = !this.folded; this.show(); } },
          this.folded ? "Show all" : "Fold equal passages"),
        make("button", { type: "button", onclick: () => { beside = !beside; redraw(); } },
          beside ? "As one text" : "Side by side")),
        drawn(version, this.view.v[0].lang ?? version.lang, !this.folded), facts];
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
  const redraw = () => groups.forEach((group) => group.body && group.show());
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
  const save = make("button", { type: "button", onclick: exported });
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
    showExport();
    filter();
  }
})();
