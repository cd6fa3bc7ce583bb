"use strict";
// Filters, sorts, opens and judges the groups that the page lists. It makes no text of documents.
(() => {
  const app = document.getElementById("app");
  if (!app) return;
  const find = (selector, within = app) => within.querySelector(selector);
  const all = (selector, within = app) => [...within.querySelectorAll(selector)];
  const list = find("#list"), search = find("[name=search]"), help = find(".help"), save = find("#save");
  const from = find("[name=from]"), shortest = find("[name=shortest]"), to = find("[name=to]"), kind = find("[name=kind]"), order = find("[name=order]");
  const store = `fpdb-${app.dataset.name}`;
  const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
  let verdicts = {}, beside = matchMedia("(min-width: 701px)").matches, at = -1, current = [];
  try { verdicts = JSON.parse(localStorage.getItem(store)) || {}; } catch { /* nothing is kept */ }

  class Group {
    constructor(box, number) {
      this.box = box;
      this.number = number;
      this.keys = JSON.parse(box.dataset.keys);
      this.low = this.made = Number(box.dataset.low);
      this.share = find(".share", box).textContent;
      this.size = Number(box.dataset.size);
      this.head = find(".head", box);
      this.title = find(".title", box).textContent;
      const names = all(".name", find("template", box).content);
      this.words = [this.title, ...names.map((name) => name.textContent)].join("\n").toLowerCase();
      this.mark = find(".marks", box).appendChild(document.createElement("span"));
      this.head.addEventListener("click", () => { move(this); this.toggle(); });
      this.showMarks();
    }
    // The share counts the passages that have as many words; a document without one isn't shown.
    shorten(least) {
      const marks = all("mark", find("template", this.box).content);
      const size = (some) => some.reduce((sum, each) => sum + each.textContent.length, 0);
      const runs = [find("template", this.box).content, this.box].flatMap((within) => all("[data-run]", within));
      for (const each of runs) each.classList.toggle("brief", Number(each.dataset.run) < least);
      if (!marks.length) return;
      const left = size(marks.filter((each) => !each.classList.contains("brief"))) / size(marks);
      this.low = this.made * left;
      find(".share", this.box).textContent = left === 1 ? this.share : `${Math.min(Math.round(this.low * 100), 99)}\u00a0%`;
    }
    get verdicts() {
      return this.keys.map((key, text) => verdicts[`${this.number}:${text}`]).filter(Boolean);
    }
    showMarks() {
      const given = [...new Set(this.verdicts)].join(", ");
      this.mark.textContent = given && ` ✓ ${given}`;
    }
    toggle() {
      const open = !this.body;
      if (open) this.open();
      else this.body = this.body.remove();
      this.head.setAttribute("aria-expanded", String(open));
      this.box.classList.toggle("open", open);
    }
    open() {
      this.body = this.box.appendChild(document.createElement("div"));
      this.body.className = "body";
      this.body.append(find("template", this.box).content.cloneNode(true));
      for (const row of all(".texts .row", this.body)) {
        const cell = row.appendChild(row.firstChild.cloneNode(true));
        cell.lang = row.closest(".texts").dataset.lang || "";
      }
      for (const texts of all(".texts", this.body)) {
        const bar = document.createElement("div");
        bar.className = "verdict";
        bar.append(find("#verdict").content.cloneNode(true));
        texts.before(bar);
        for (const each of all("[data-verdict]", bar)) each.onclick = () => this.judge(each.dataset.verdict);
        find("[data-view=print]", bar).onclick = () => this.print();
        find("[data-view=beside]", bar).onclick = () => { beside = !beside; redraw(); };
        find("[data-view=fold]", bar).onclick = ({ target }) => {
          const folds = all(".folded", texts), open = folds.some((each) => !each.open);
          for (const each of folds) each.open = open;
          target.textContent = open ? "Fold equal passages" : "Show all";
        };
      }
      for (const each of all("[data-choose]", this.body)) each.onclick = () => this.choose(Number(each.dataset.choose));
      for (const each of all("mark", this.body)) each.onclick = () => this.choose(Number(each.dataset.source));
      this.choose(1);
    }
    choose(text) {
      if (!this.body || (text !== 1 && !find(`section[data-text="${text}"]`, this.body))) return;
      this.text = text;
      for (const each of all("[data-text]", this.body)) each.hidden = Number(each.dataset.text) !== text;
      for (const each of all("[data-choose]", this.body)) each.ariaPressed = String(Number(each.dataset.choose) === text);
      this.show();
    }
    show() {
      const verdict = verdicts[`${this.number}:${this.text}`];
      const unsaved = this.keys[0] === null || this.keys[this.text] === null;
      for (const bar of all(".verdict", this.body)) {
        if (save) find(".soft", bar).textContent = (verdict ? `Your verdict: ${verdict}` : "Are they the same?")
          + (unsaved ? " (not saved: a key is too long)" : "");
        for (const each of all("[data-verdict]", bar)) each.ariaPressed = String(each.dataset.verdict === verdict);
        find("[data-view=beside]", bar).textContent = beside ? "As one text" : "Side by side";
      }
    }
    print() {
      this.box.classList.add("printed");
      window.print();
      this.box.classList.remove("printed");
    }
    judge(word) {
      if (!save || !this.body || !find(`section[data-text="${this.text}"] .verdict`, this.body)) return;
      const name = `${this.number}:${this.text}`;
      if (verdicts[name] === word) delete verdicts[name];
      else verdicts[name] = word;
      try { localStorage.setItem(store, JSON.stringify(verdicts)); } catch { /* nothing is kept */ }
      this.show();
      this.showMarks();
      showExport();
    }
  }

  const groups = all("article").map((box, number) => new Group(box, number));
  function redraw() {
    app.className = beside ? "" : "one";
    for (const group of groups) if (group.body) group.show();
  }
  const collator = new Intl.Collator();
  const orders = {
    given: (one, other) => one.number - other.number,
    similar: (one, other) => other.low - one.low || one.number - other.number,
    large: (one, other) => other.size - one.size || one.number - other.number,
    title: (one, other) => collator.compare(one.title, other.title),
  };
  const kinds = {
    open: (group) => group.keys.length > 1 && !group.verdicts.length,
  };
  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const low = Number(from.value), high = to.value === "" ? 100 : Number(to.value);
    const least = Number(shortest?.value);
    const wanted = kinds[kind.value] || ((group) => !kind.value || group.box.classList.contains(kind.value));
    const chosen = current[at];
    current = groups.filter((group) => {
      const share = Math.floor(group.low * 100 + 1e-9);
      return (group.low || !least) && share >= low && share <= high && wanted(group) && words.every((word) => group.words.includes(word));
    }).sort(orders[order.value]);
    list.replaceChildren(...current.map((group) => group.box));
    at = current.indexOf(chosen);
    find("#none").hidden = current.length > 0;
    const total = count(groups.length, app.dataset.noun);
    find("[role=status]").textContent = current.length === groups.length ? total
      : `${current.length.toLocaleString("en")} of ${total}`;
  }
  function shorten() {
    for (const group of groups) group.shorten(Number(shortest?.value));
    filter();
  }
  function move(group) {
    find(".at")?.classList.remove("at");
    at = current.indexOf(group);
    if (!group) return;
    group.box.classList.add("at");
    group.box.scrollIntoView({ block: "nearest" });
    group.head.focus({ preventScroll: true });
  }

  const judged = () => groups.flatMap((group) => group.keys.map((key, text) =>
    [group.keys[0], key, verdicts[`${group.number}:${text}`]])).filter((row) => row.every(Boolean));
  function showExport() {
    if (!save) return;
    const number = judged().length;
    save.textContent = number ? `Save ${count(number, "verdict")}` : "Save verdicts";
    save.disabled = !number;
    save.title = "As pairs.csv, which fpdb eval takes; pairs that you are unsure about are left out";
  }
  const quoted = (text) => `"${text.replaceAll('"', '""')}"`;
  function download(name, rows) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob(rows.map((row) => `${row.join(",")}\n`), { type: "text/csv" }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }
  if (save) save.onclick = () => {
    const rows = judged().filter(([, , word]) => word !== "unsure")
      .map(([one, other, word]) => [quoted(one), quoted(other), word === "same" ? 1 : 0]);
    download("pairs.csv", [["key", "other", "same"], ...rows]);
  };
  // In the language of the reader, by the program that comes after this one.
  const said = (text) => globalThis.fpdbSaid?.(text) ?? text;
  // For people: Excel needs the mark at the beginning, and takes a text with such a sign for a formula.
  const signs = /*formula signs*/"";
  const cell = (text) => quoted(text && signs.includes(text[0]) ? `'${text}` : text);
  find("#csv").onclick = () => {
    const rows = current.flatMap((group) => all(":is(.names, .copies) > div", find("template", group.box).content)
      .flatMap((box) => all(".name", box).map((name) => [group.number + 1, (group.low * 100).toFixed(1), group.size,
        ...[group.title, said(find("b", box).textContent), name.textContent, name.dataset.note, name.dataset.url].map(cell)])));
    const head = [app.dataset.noun, "percent", "size", "title", "role", "key", "date and host", "link"].map(said);
    download(`${app.dataset.noun}s.csv`, [["\ufeff" + head[0], ...head.slice(1)], ...rows]);
  };

  // A cell of the matrix shows its two documents.
  for (const cell of document.querySelectorAll(".matrix rect[data-of]")) cell.onclick = () => {
    const { of, other } = cell.dataset;
    const group = groups.find(({ keys }) => keys[0] === of && keys.includes(other)) || groups.find(({ keys }) => keys[0] === of);
    if (!group) return;
    move(group);
    if (!group.body) group.toggle();
    group.choose(Math.max(group.keys.indexOf(other), 1));
    group.box.scrollIntoView({ block: "start" });
  };
  find("#every").onclick = ({ target }) => {
    const closed = current.filter((group) => !group.body);
    for (const group of closed.length ? closed : current) group.toggle();
    target.textContent = closed.length ? "Close all" : "Open all";
  };
  find("#none button").onclick = () => {
    for (const control of [search, from, to, kind, shortest]) if (control) control.value = control.defaultValue || "";
    shorten();
  };

  const keys = {
    j: () => move(current[Math.min(at + 1, current.length - 1)]),
    k: () => move(current[Math.max(at - 1, 0)]),
    o: () => current[at]?.toggle(),
    n: () => current[at]?.choose(current[at].text + 1),
    p: () => current[at]?.choose(current[at].text - 1),
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
  for (const control of [search, from, to, kind, order]) control.addEventListener("input", filter);
  shortest?.addEventListener("input", shorten);
  redraw();
  showExport();
  filter();
})();
