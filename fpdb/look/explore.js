"use strict";
// Keys for the pages of the explorer: each follows the link, or presses the button, that names it.
(() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const heads = all("a.head");
  let at = -1;
  function move(step) {
    at = Math.min(Math.max(at + step, 0), heads.length - 1);
    heads[at]?.focus();
  }
  const keys = { j: () => move(1), k: () => move(-1), o: () => heads[at]?.click(), "?": () => all(".help summary")[0]?.click() };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") return document.activeElement?.blur();
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const [named] = all(`[data-key="${CSS.escape(event.key)}"]`);
    if (!named && !Object.hasOwn(keys, event.key)) return;
    event.preventDefault();
    if (!named) keys[event.key]();
    else if (named.matches("input")) named.focus();
    else named.click();
  });
  for (const each of all("[data-print]")) each.onclick = () => print();
  // The server doesn't know in which language the page is read.
  for (const each of all("a[data-table]")) each.onclick = () => { each.search += `&language=${document.documentElement.lang}`; };
})();
