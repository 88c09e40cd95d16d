/* Other charts: estimates with intervals, points of an episode, values on a plan. */
"use strict";

const measureText = document.createElement("canvas").getContext("2d");

/* Width in pixels of a text in the font of `svg text` (report.css). */
function textWidth(text) {
  measureText.font = "13px system-ui, sans-serif";
  return measureText.measureText(text).width;
}

/* Break a text into lines of at most `width` pixels: at blanks, and inside a word that is longer. */
function wrapText(text, width) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const last = lines[lines.length - 1],
      longer = last ? `${last} ${word}` : word;
    if (textWidth(longer) <= width) {
      lines[lines.length - 1] = longer;
      continue;
    }
    if (last) lines.push("");
    for (const letter of word) {
      if (lines[lines.length - 1] && textWidth(lines[lines.length - 1] + letter) > width) lines.push("");
      lines[lines.length - 1] += letter;
    }
  }
  return lines;
}

/* Estimates with their intervals, one row each, as SVG. Names are wrapped, never cut, so that methods
   that differ in their last setting stay apart. */
function intervalChart(rows, label, fromZero) {
  const width = Math.max(280, Math.min(640, main.clientWidth - 60)),
    line = 16,
    right = width * 0.17,
    wrapped = rows.map((r) => wrapText(r.method, width * 0.4)),
    names = Math.max(width * 0.2, ...wrapped.flat().map((text) => textWidth(text) + 14)),
    heights = wrapped.map((lines) => 14 + line * lines.length),
    height = heights.reduce((sum, h) => sum + h, 30);
  const ends = rows.flatMap((r) => [r.value, r.low, r.high]).filter((v) => v !== null && v !== undefined);
  let low = Math.min(...ends),
    high = Math.max(...ends);
  const pad = (high - low || Math.abs(high) || 1) * 0.08;
  low = fromZero ? 0 : low - pad;
  high += pad;
  const px = (v) => names + ((v - low) / (high - low)) * (width - names - right);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const t of ticks(low, high, (width - names) / 110)) {
    root.append(svg("line", { x1: px(t), x2: px(t), y1: 0, y2: height - 24, stroke: "var(--grid)" }));
    root.append(svg("text", { x: px(t), y: height - 8, "text-anchor": "middle", class: "soft" }, number(t, 3)));
  }
  let top = 0;
  rows.forEach((r, i) => {
    const y = top + heights[i] / 2,
      colour = `var(${methodColourName(r.method)})`,
      name = svg("text", { "text-anchor": "end" });
    top += heights[i];
    wrapped[i].forEach((text, k) =>
      name.append(svg("tspan", { x: names - 10, y: y + 4 + line * (k - (wrapped[i].length - 1) / 2) }, text)),
    );
    root.append(name);
    if (r.low !== null && r.low !== undefined) {
      root.append(
        svg("line", {
          x1: px(r.low),
          x2: px(r.high),
          y1: y,
          y2: y,
          stroke: colour,
          "stroke-width": 4,
          "stroke-linecap": "round",
          opacity: 0.55,
        }),
      );
      for (const v of [r.low, r.high])
        root.append(svg("line", { x1: px(v), x2: px(v), y1: y - 6, y2: y + 6, stroke: colour, "stroke-width": 2 }));
    }
    root.append(
      svg("circle", {
        cx: px(r.value),
        cy: y,
        r: 6,
        fill: r.low === null || r.low === undefined ? "var(--panel)" : colour,
        stroke: colour,
        "stroke-width": 2.5,
      }),
    );
    root.append(svg("text", { x: width - right + 12, y: y + 4 }, r.text));
  });
  return root;
}

/* Perceptually even and safe for the colour-blind: anchors of viridis, from dark to bright. */
const VIRIDIS = [
  [68, 1, 84],
  [71, 44, 122],
  [59, 81, 139],
  [44, 113, 142],
  [33, 144, 141],
  [39, 173, 129],
  [92, 200, 99],
  [170, 220, 50],
  [253, 231, 37],
];

function viridis(share) {
  const at = Math.max(0, Math.min(1, share)) * (VIRIDIS.length - 1),
    i = Math.min(VIRIDIS.length - 2, Math.floor(at)),
    f = at - i;
  return `rgb(${VIRIDIS[i].map((v, k) => Math.round(v + (VIRIDIS[i + 1][k] - v) * f)).join(",")})`;
}

/* Points of an episode, consecutive ones joined, coloured by time. */
class PointMap extends Canvas {
  constructor(label, onPick, preview) {
    super((width) => Math.min(width, 420), label);
    this.chart = { steps: [], x: [], y: [] };
    this.step = 0;
    this.canvas.addEventListener("pointermove", (e) => {
      const i = this.find(e);
      if (i === null) return this.hideTip();
      const [x, y] = this.place(i);
      this.tip(x, y, preview(this.chart.steps[i]));
    });
    this.canvas.addEventListener("pointerleave", () => this.hideTip());
    this.canvas.addEventListener("click", (e) => {
      const i = this.find(e, 30);
      if (i !== null) onPick(this.chart.steps[i]);
    });
  }

  set(chart) {
    this.chart = chart;
    this.draw();
  }

  show(step) {
    this.step = step;
    this.draw();
  }

  place(i) {
    const side = Math.min(this.box.clientWidth, 420) - 28,
      left = (this.box.clientWidth - side) / 2;
    return [left + (this.chart.x[i] / 1000) * side, 14 + (1 - this.chart.y[i] / 1000) * side];
  }

  find(event, reach = 14) {
    const box = this.canvas.getBoundingClientRect(),
      x = event.clientX - box.left,
      y = event.clientY - box.top;
    let best = null,
      near = reach;
    for (let i = 0; i < this.chart.steps.length; i++) {
      const [a, b] = this.place(i),
        d = Math.hypot(a - x, b - y);
      if (d < near) {
        near = d;
        best = i;
      }
    }
    return best;
  }

  draw() {
    const begun = this.begin();
    if (!begun || !this.chart.steps.length) return;
    const { g } = begun,
      { steps } = this.chart,
      last = steps[steps.length - 1] || 1;
    const dim = document.documentElement.dataset.theme === "dark" ? 0.25 : 0; // its darkest colours would be lost on dark
    g.strokeStyle = css("--soft");
    g.globalAlpha = 0.35;
    g.lineWidth = 0.8;
    g.beginPath();
    steps.forEach((_, i) => (i ? g.lineTo : g.moveTo).call(g, ...this.place(i)));
    g.stroke();
    g.globalAlpha = 1;
    steps.forEach((step, i) => {
      g.fillStyle = viridis(dim + (1 - dim) * (step / last));
      g.beginPath();
      g.arc(...this.place(i), 3, 0, 7);
      g.fill();
    });
    const now = nearest(steps, this.step);
    g.strokeStyle = css("--c1");
    g.lineWidth = 1.5;
    g.beginPath();
    for (let i = Math.max(0, now - 5); i <= now; i++)
      (i === Math.max(0, now - 5) ? g.moveTo : g.lineTo).call(g, ...this.place(i));
    g.stroke();
    const [x, y] = this.place(now);
    g.fillStyle = css("--page");
    g.beginPath();
    g.arc(x, y, 7, 0, 7);
    g.fill();
    g.stroke();
    this.canvas.dataset.step = steps[now];
    this.canvas.dataset.at = `${Math.round(x)},${Math.round(y)}`;
  }
}

/* Values by cell of a plan; walls stay dark. */
class HeatMap extends Canvas {
  constructor(label) {
    super((width) => Math.min(width, 380), label);
    this.canvas.addEventListener("pointermove", (e) => this.point(e));
    this.canvas.addEventListener("pointerleave", () => this.hideTip());
  }

  set({ floor, marks, values, low, high, log, text }) {
    this.floor = floor;
    this.marks = marks;
    this.values = values;
    this.low = low;
    this.high = high;
    this.log = log;
    this.text = text;
    this.cells = [];
    floor.forEach((row, r) =>
      [...row].forEach((cell, c) => {
        if (cell === "1") this.cells.push([r, c]);
      }),
    );
    this.draw();
  }

  share(value) {
    const f = this.log ? Math.log1p : (v) => v,
      a = f(this.low),
      b = f(this.high);
    return b > a ? (f(value) - a) / (b - a) : 0.5;
  }

  draw() {
    const begun = this.begin();
    if (!begun || !this.floor) return;
    const { g, width, height } = begun,
      side = this.floor.length,
      size = Math.min(width, height) / side,
      left = (width - size * side) / 2;
    this.layout = { size, left };
    const put = (r, c, colour) => {
      g.fillStyle = colour;
      g.fillRect(Math.floor(left + c * size), Math.floor(r * size), Math.ceil(size), Math.ceil(size));
    };
    for (let r = 0; r < side; r++) for (let c = 0; c < side; c++) put(r, c, css("--line"));
    this.cells.forEach(([r, c], i) => {
      const value = this.values?.[i];
      const blank = value === null || value === undefined || (this.log && value === 0);
      put(r, c, blank ? css("--page") : viridis(this.share(value)));
    });
    g.textAlign = "center";
    g.textBaseline = "middle";
    g.font = `600 ${Math.max(9, size * 0.62)}px system-ui, sans-serif`;
    for (const { what, row, column } of this.marks) {
      g.lineWidth = 3;
      g.strokeStyle = "#000";
      g.fillStyle = "#fff";
      const at = [left + (column + 0.5) * size, (row + 0.55) * size],
        sign = { start: "S", key: "K", lock: "L", treasure: "T" }[what];
      g.strokeText(sign, ...at);
      g.fillText(sign, ...at);
    }
  }

  point(event) {
    if (!this.layout) return;
    const box = this.canvas.getBoundingClientRect(),
      x = event.clientX - box.left,
      y = event.clientY - box.top;
    const c = Math.floor((x - this.layout.left) / this.layout.size),
      r = Math.floor(y / this.layout.size);
    const i = this.cells.findIndex(([a, b]) => a === r && b === c);
    if (i < 0 || !this.values) return this.hideTip();
    this.tip(
      x,
      y,
      el("div", {
        textContent: `row ${r}, column ${c}: ${this.values[i] === null ? "not asked" : number(this.values[i]) + " " + this.text}`,
      }),
    );
  }
}
