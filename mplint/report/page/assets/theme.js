"use strict";
// Before anything is drawn: the theme that was chosen here before.
try {
  const theme = localStorage.getItem("mplint-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* a page in a sandbox keeps nothing */ }
