"use strict";
// Shows a page in the language of its reader. Messages are found by their English text, in which
// {n} and {m} are numbers, {name} stays as it is, and others are messages, too; documents' own texts
// have dir=auto, and stay.
(() => {
  const catalogue = /*catalogue*/{};
  const attributes = ["placeholder", "aria-label", "title"], english = new WeakMap();
  const pattern = (text) => new RegExp(`^${text.replace(/[.*+?^$|()[\]\\]/g, "\\$&").replaceAll("\\(s\\)", "s?")
    .replace(/\{(\w+)\}/g, (_, name) => `(?<${name}>${/^[nm]$/.test(name) ? "<?[≈\\d.,\u00a0%–]+" : ".+?"})`)}$`, "s");
  let language, messages, patterns;
  function choose(code) {
    language = code;
    messages = catalogue[code]?.messages || {};
    patterns = Object.keys(messages).filter((text) => /\{\w+\}|\(s\)/.test(text)).map((text) => [pattern(text), messages[text]]);
  }
  function found(text) {
    if (Object.hasOwn(messages, text)) return messages[text];
    for (const [form, message] of patterns) {
      const groups = form.exec(text)?.groups;
      if (groups) return message.replace(/\{(\w+)\}/g, (_, name) => name === "name" ? groups[name] : parts(groups[name], /[,;] | and /, "、"));
    }
    return null;
  }
  const parts = (text, between, joined) => found(text) ?? text.split(between).map((part) => found(part) ?? part).join(joined);
  function say(text) {
    const [, before, inner, after] = /^(\s*)(.*?)((?: · fpdb)?\s*)$/s.exec(text); // as titles end
    const line = inner.replace(/[ \n]+/g, " ");
    const sentences = line.split(/(?<=[.;]) /);
    const whole = (each) => found(each) ?? (each.endsWith(".") && found(each.slice(0, -1)) ? `${found(each.slice(0, -1))}。` : null);
    const said = found(line) ?? (sentences.some(whole) ? sentences.map((each) => whole(each) ?? each).join("") : inner);
    return before + said.replaceAll("\u00a0%", "%") + after;
  }
  globalThis.fpdbSaid = (text) => language === "en" ? text : say(text);
  function set(owner, name, text, write) {
    const kept = english.get(owner) || {}, old = kept[name];
    const source = old && text === old.shown ? old.source : text;
    const shown = language === "en" ? source : say(source);
    kept[name] = { source, shown };
    english.set(owner, kept);
    if (shown !== text) write(shown);
  }
  function translate(root) {
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
    for (let node = root; node; node = walker.nextNode()) {
      if (node.nodeType === Node.TEXT_NODE) {
        if (node.data.trim() && !node.parentElement?.closest("[dir=auto]:not(h1), bdi, script, style, code, textarea, #language"))
          set(node, "text", node.data, (shown) => { node.data = shown; });
      } else for (const name of attributes)
        if (node.hasAttribute?.(name)) set(node, name, node.getAttribute(name), (shown) => node.setAttribute(name, shown));
    }
  }
  const other = document.createElement("select");
  other.id = "language";
  other.setAttribute("aria-label", "Language");
  for (const [code, name] of [["en", "English"], ...Object.entries(catalogue).map(([code, { name }]) => [code, name])])
    other.add(new Option(name, code));
  function show() {
    document.documentElement.lang = other.value = language;
    translate(document.documentElement);
  }
  let saved = "";
  try { saved = localStorage.getItem("fpdb-language") || ""; } catch { /* nothing is kept */ }
  const usual = Object.keys(catalogue).find((code) => navigator.language.slice(0, 2) === code.slice(0, 2)) || "en";
  choose(saved === "en" || catalogue[saved] ? saved : usual);
  other.onchange = () => {
    choose(other.value);
    try { localStorage.setItem("fpdb-language", language); } catch { /* nothing is kept */ }
    show();
  };
  const skip = document.querySelector(".skip");
  if (skip) skip.after(other);
  else document.body.prepend(other);
  show();
  new MutationObserver((changes) => {
    if (language === "en") return;
    for (const { target, type, addedNodes } of changes)
      for (const node of type === "childList" ? addedNodes : [target]) if (node.isConnected) translate(node);
  }).observe(document.documentElement, { subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: attributes });
})();
