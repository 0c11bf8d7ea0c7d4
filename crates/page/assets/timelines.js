// Zooms the timelines of a page: drag over a span to see it alone, double-click to see all again.
(function () {
  "use strict";
  document.querySelectorAll("figure.timeline").forEach(function (figure) {
    var bars = figure.querySelector("svg.bars");
    if (!bars) return;
    var last = Number(bars.dataset.last), width = bars.viewBox.baseVal.width, height = bars.viewBox.baseVal.height;
    var from = 0, to = last, start = null;
    var marks = Array.from(figure.querySelectorAll("text.mark"));
    var shade = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    shade.setAttribute("height", height);
    shade.setAttribute("fill", "currentColor");
    shade.setAttribute("fill-opacity", "0.2");
    shade.setAttribute("pointer-events", "none");
    function show() {
      bars.setAttribute("viewBox", [from / last * width, 0, (to - from) / last * width, height].join(" "));
      var digits = Math.max(2, 1 - Math.floor(Math.log10((to - from) / marks.length)));
      marks.forEach(function (mark, number) {
        mark.textContent = (from + (to - from) * number / (marks.length - 1)).toFixed(digits);
      });
    }
    function at(event) {
      var box = bars.getBoundingClientRect();
      var part = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
      return from + (to - from) * part;
    }
    bars.style.cursor = "crosshair";
    bars.addEventListener("mousedown", function (event) {
      if (event.button !== 0) return;
      start = at(event);
      event.preventDefault();
    });
    // The hand may leave the picture.
    window.addEventListener("mousemove", function (event) {
      if (start === null) return;
      var now = at(event);
      shade.setAttribute("x", Math.min(start, now) / last * width);
      shade.setAttribute("width", Math.abs(now - start) / last * width);
      bars.appendChild(shade);
    });
    window.addEventListener("mouseup", function (event) {
      if (start === null) return;
      var end = at(event), begin = start;
      start = null;
      shade.remove();
      // Less was a click, or a hand that trembled.
      if (Math.abs(end - begin) < (to - from) / 100) return;
      from = Math.min(begin, end);
      to = Math.max(begin, end);
      show();
    });
    bars.addEventListener("dblclick", function () { from = 0; to = last; show(); });
  });
})();
