"use strict";
// Filters, groups and steps through findings; without it the page shows all of them by file.
(() => {
  const list = document.getElementById("findings");
  if (!list) return;
  const cards = [...list.querySelectorAll(".card")];
  const search = document.getElementById("search");
  const count = document.getElementById("count");
  const empty = document.getElementById("none-left");
  const severities = [...document.querySelectorAll("[data-severity-toggle]")];
  const rules = [...document.querySelectorAll("[data-rule-toggle]")];
  const groupings = [...document.querySelectorAll("[data-group]")];
  const total = (found) => [...found].reduce((sum, card) => sum + Number(card.dataset.count), 0);
  const all = total(cards);
  let at = -1;

  const pressed = (button) => button.getAttribute("aria-pressed") === "true";
  const press = (button, on) => button.setAttribute("aria-pressed", String(on));

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shownSeverities = new Set(severities.filter(pressed).map((one) => one.dataset.severityToggle));
    const chosen = new Set(rules.filter(pressed).map((one) => one.dataset.ruleToggle));
    let shown = 0;
    for (const card of cards) {
      const visible = shownSeverities.has(card.dataset.severity) && (!chosen.size || chosen.has(card.dataset.code))
        && words.every((word) => card.dataset.words.includes(word));
      card.hidden = !visible;
      shown += visible ? Number(card.dataset.count) : 0;
    }
    for (const group of list.querySelectorAll(".group")) {
      const left = total(group.querySelectorAll(".card:not([hidden])"));
      group.hidden = !left;
      group.querySelector(".count").textContent = left;
    }
    count.textContent = `${shown === all ? "" : `${shown} of `}${all} finding${all === 1 ? "" : "s"}`;
    empty.hidden = shown > 0;
  }
  function group(by) {
    groupings.forEach((one) => press(one, one.dataset.group === by));
    const named = new Map();
    const ordered = by === "file" ? cards : [...cards].sort((a, b) => a.dataset.rank - b.dataset.rank || a.dataset.number - b.dataset.number);
    for (const card of ordered) {
      const name = by === "file" ? card.dataset.path : `${card.dataset.code} ${card.dataset.name}`;
      if (!named.has(name)) named.set(name, []);
      named.get(name).push(card);
    }
    const groups = [...named].map(([name, found]) => {
      const made = document.createElement("section");
      made.className = "group";
      const head = document.createElement("h3");
      const text = document.createElement("span");
      text.textContent = name;
      if (by === "file") text.className = "mono";
      const number = document.createElement("span");
      number.className = "count";
      head.append(text, " ", number);
      made.append(head, ...found);
      return made;
    });
    list.replaceChildren(...groups);
    filter();
  }
  function go(step) {
    const shown = [...list.querySelectorAll(".card:not([hidden])")];
    if (!shown.length) return;
    const current = shown.indexOf(document.activeElement?.closest?.(".card") ?? null);
    at = current >= 0 ? current : at < 0 && step > 0 ? -1 : Math.min(at, shown.length - 1);
    at = Math.max(0, Math.min(shown.length - 1, at + step));
    shown[at].focus({ preventScroll: true });
    shown[at].scrollIntoView({ block: "start" });
  }
  function unfold() {
    const card = document.activeElement?.closest?.(".card");
    if (!card) return;
    const parts = [...card.querySelectorAll("details")];
    const open = parts.some((one) => !one.open);
    parts.forEach((one) => { one.open = open; });
  }
  function clear() {
    search.value = "";
    severities.forEach((one) => press(one, true));
    rules.forEach((one) => press(one, false));
    filter();
  }
  search.addEventListener("input", filter);
  for (const button of [...severities, ...rules]) {
    button.addEventListener("click", () => { press(button, !pressed(button)); filter(); });
  }
  groupings.forEach((button) => button.addEventListener("click", () => group(button.dataset.group)));
  document.querySelectorAll("[data-clear]").forEach((one) => one.addEventListener("click", clear));
  document.querySelectorAll("[data-only-rule]").forEach((one) => one.addEventListener("click", () => {
    clear();
    rules.forEach((rule) => press(rule, rule.dataset.ruleToggle === one.dataset.onlyRule));
    filter();
    document.getElementById("findings-title").scrollIntoView();
  }));
  function reveal() { // what an address names may be filtered out, or folded away
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const card = target?.closest(".card");
    if (!card) return;
    if (card.hidden) clear();
    const folded = target.closest("details");
    if (folded) folded.open = true;
    target.scrollIntoView();
    card.focus({ preventScroll: true });
  }
  addEventListener("hashchange", reveal);
  page.shortcut("/", "search", () => search.focus());
  page.shortcut("j", "next finding", () => go(1));
  page.shortcut("k", "previous finding", () => go(-1));
  page.shortcut("o", "open or close what the finding holds", unfold);
  page.shortcut("f", "group by file", () => group("file"));
  page.shortcut("r", "group by rule", () => group("rule"));
  severities.forEach((one, number) => {
    page.shortcut(String(number + 1), `show or hide ${one.dataset.label}`, () => { press(one, !pressed(one)); filter(); });
  });
  page.shortcut("c", "clear the filters", clear);
})();
