// Draws the graphs of a page: each figure of class "graph" holds its lines as JSON.
(function () {
  "use strict";
  // Looked at when something is drawn, so that a change from light to dark shows.
  var printing = false, opened = [];
  function ink() { return printing ? "rgb(0, 0, 0)" : getComputedStyle(document.body).color; }
  function faint() { return ink().replace(/^rgb\(/, "rgba(").replace(/\)$/, ", 0.15)"); }
  function scale(kind, number) {
    if (kind === "linear") return { time: false, range: number ? function (_plot, low, high) { return [0, high > 0 ? high * 1.05 : 1]; } : undefined };
    return { time: false, distr: 3, log: kind === "doubling" ? 2 : 10 };
  }
  function short(value) {
    if (value === null || value === undefined) return "–";
    var size = Math.abs(value);
    if (size >= 1000 || Number.isInteger(value)) return Math.round(value).toLocaleString("en");
    return String(Number(value.toPrecision(4)));
  }
  function axis(label, side) {
    return {
      label: label, stroke: ink, size: side ? 72 : 44, grid: { stroke: faint, width: 1 }, ticks: { stroke: faint, width: 1 },
      values: function (_plot, values) { return values.map(function (value) { return value === null ? "" : short(value); }); },
    };
  }
  // What is folded away has no width until it is opened.
  function width(figure) { return Math.max(figure.clientWidth, 320); }
  var plots = [];
  document.querySelectorAll("figure.graph").forEach(function (figure) {
    var drawing = JSON.parse(figure.querySelector("script").textContent);
    var series = [{ label: drawing.across, value: function (_plot, value) { return short(value); } }];
    drawing.lines.forEach(function (line) {
      series.push({
        label: line.name, stroke: line.colour, width: 2, spanGaps: true, dash: line.dashed ? [6, 4] : undefined,
        points: { show: drawing.numbers.length <= 40 },
        value: function (_plot, value) { return short(value); },
      });
    });
    var options = {
      width: width(figure), height: drawing.height, series: series,
      scales: { x: scale(drawing.across_scale, false), y: scale(drawing.up_scale, true) },
      axes: [axis(drawing.across, false), axis(drawing.up, true)],
      cursor: { drag: { x: true, y: false } },
    };
    var data = [drawing.numbers].concat(drawing.lines.map(function (line) { return line.values; }));
    plots.push([figure, new uPlot(options, data, figure), drawing.height]);
  });
  function fit() { plots.forEach(function (plot) { plot[1].setSize({ width: width(plot[0]), height: plot[2] }); }); }
  window.addEventListener("resize", fit);
  window.addEventListener("beforeprint", function () {
    printing = true;
    opened = Array.from(document.querySelectorAll("details.part:not([open])"));
    opened.forEach(function (details) { details.open = true; });
    fit();
  });
  window.addEventListener("afterprint", function () {
    printing = false;
    opened.forEach(function (details) { details.open = false; });
    fit();
  });
  document.querySelectorAll("details").forEach(function (details) { details.addEventListener("toggle", fit); });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () {
    plots.forEach(function (plot) { plot[1].redraw(false, true); });
  });
})();
