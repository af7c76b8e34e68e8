"use strict";
// Reads the values of curves where the pointer or the keys are, and shows and hides policies.
(() => {
  const buttons = [...document.querySelectorAll("[data-policy]")];
  const charts = [...document.querySelectorAll("[data-chart]")].map((figure) => {
    const { each, count, lines } = page.data.charts[Number(figure.dataset.chart)];
    const plane = figure.querySelector(".plane");
    return { figure, plane, each, count, lines, cursor: plane.querySelector(".cursor"), readout: figure.querySelector(".readout"), at: -1 };
  });
  const shown = (policy) => buttons.every((one) => one.dataset.policy !== policy || one.getAttribute("aria-pressed") === "true");

  function read(chart, at) {
    chart.at = Math.min(chart.count - 1, Math.max(0, at));
    const first = chart.at * chart.each, last = first + chart.each - 1;
    const where = chart.each > 1 ? `Steps ${first.toLocaleString("en")} to ${last.toLocaleString("en")}, mean` : `Step ${first.toLocaleString("en")}`;
    const told = Object.entries(chart.lines).filter(([policy]) => shown(policy)).map(([policy, values]) => `${policy} ${values[chart.at] || "–"}`);
    chart.readout.textContent = `${where}: ${told.join(" · ")}`;
    chart.cursor.hidden = false;
    chart.cursor.style.left = `${100 * chart.at / Math.max(1, chart.count - 1)}%`;
  }
  function turn(button) {
    button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
    for (const one of document.querySelectorAll("[data-of]")) one.toggleAttribute("hidden", !shown(one.dataset.of));
    for (const chart of charts) if (chart.at >= 0) read(chart, chart.at);
  }
  for (const chart of charts) {
    chart.plane.addEventListener("pointermove", (event) => {
      const box = chart.plane.getBoundingClientRect();
      read(chart, Math.round((event.clientX - box.left) / box.width * (chart.count - 1)));
    });
    chart.plane.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
      if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      read(chart, (chart.at < 0 ? 0 : chart.at) + moves[event.key]);
    });
  }
  buttons.forEach((button, at) => {
    button.addEventListener("click", () => turn(button));
    page.shortcut(String(at + 1), `show or hide ${button.dataset.policy}`, () => turn(button));
  });
  if (charts.length) page.shortcut("c", "to the curves", () => charts[(charts.findIndex(({ plane }) => plane === document.activeElement) + 1) % charts.length].plane.focus());
})();
