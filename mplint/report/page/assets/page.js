"use strict";
// What every page has: the theme, the list of shortcuts, and what a printed page must show.
const page = (() => {
  const root = document.documentElement;
  const shortcuts = [];
  const keep = (theme) => { try { localStorage.setItem("mplint-theme", theme); } catch { /* a page in a sandbox keeps nothing */ } };

  function dark() {
    const theme = root.dataset.theme;
    return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }
  function show() {
    const button = document.getElementById("theme");
    button.setAttribute("aria-pressed", String(dark()));
    document.dispatchEvent(new Event("themechange"));
  }
  function turn() {
    root.dataset.theme = dark() ? "light" : "dark";
    keep(root.dataset.theme);
    show();
  }
  function shortcut(key, what, act, shown = key) {
    shortcuts.push({ key, what, act, shown });
  }
  function help() {
    const dialog = document.getElementById("help");
    if (dialog.open) { dialog.close(); return; }
    const rows = shortcuts.map(({ what, shown }) => {
      const row = document.createElement("tr");
      const cell = row.insertCell();
      shown.split(" ").forEach((one, at) => {
        if (at) cell.append(" ");
        const key = document.createElement("kbd");
        key.textContent = one;
        cell.append(key);
      });
      row.insertCell().textContent = what;
      return row;
    });
    dialog.querySelector("tbody").replaceChildren(...rows);
    dialog.showModal();
  }
  function typing(target) {
    return target instanceof HTMLElement && (target.matches("input, textarea, select") || target.isContentEditable);
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (typing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const found = shortcuts.find(({ key }) => key === event.key);
    if (found) {
      event.preventDefault();
      found.act();
    }
  });
  document.addEventListener("DOMContentLoaded", () => {
    document.getElementById("theme").addEventListener("click", turn);
    document.getElementById("shortcuts").addEventListener("click", help);
    shortcut("t", "light or dark", turn);
    shortcut("?", "this list", help);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
    show();
  });
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details:not([open])")) {
      one.dataset.printed = "";
      one.open = true;
    }
  });
  addEventListener("afterprint", () => {
    for (const one of document.querySelectorAll("details[data-printed]")) {
      delete one.dataset.printed;
      one.open = false;
    }
  });
  const data = JSON.parse(document.getElementById("data").textContent);
  return { shortcut, data, dark };
})();
