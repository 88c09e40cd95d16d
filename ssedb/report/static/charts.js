/* Small charts on canvas: lines, intervals, maps of points, heat maps. Text from the data is only ever set as text. */
"use strict";

const charts = new Set();
const PALETTE_SIZE = 7;

function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (key === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (key === "class") node.className = value;
    else if (key in node && key !== "list") node[key] = value;
    else node.setAttribute(key, value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

function svg(tag, attributes = {}, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function number(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return trim((value / 1e6).toPrecision(digits)) + "M";
  if (size >= 1e4) return trim((value / 1e3).toPrecision(digits)) + "k";
  if (size !== 0 && size < 1e-3) return value.toExponential(2);
  return trim(value.toPrecision(digits));
}

function trim(text) {
  return text.includes("e") ? String(Number(text)) : text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function ticks(low, high, count) {
  const span = high - low || 1, rough = span / Math.max(count, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((m) => m * power >= rough) * power, found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * span; i++) found.push(Math.abs(i * step) < 1e-12 * span ? 0 : i * step);
  return found;
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function methodColour(method) {
  const index = Math.max(0, data.methods.indexOf(method));
  return css("--c" + (index % PALETTE_SIZE));
}

function methodDash(method) {  // past the colours, dashes tell methods apart
  return [[], [7, 3], [2, 3], [9, 3, 2, 3]][Math.floor(Math.max(0, data.methods.indexOf(method)) / PALETTE_SIZE) % 4];
}

function redrawAll() {
  for (const chart of charts) chart.canvas.isConnected ? chart.draw() : charts.delete(chart);
}

/* A canvas that fills its place at the screen's resolution and redraws when its size or the theme changes. */
class Canvas {
  constructor(height, label) {
    this.height = height;
    this.canvas = el("canvas", { tabIndex: 0, role: "img", "aria-label": label });
    this.box = el("div", { class: "chart" }, this.canvas);
    new ResizeObserver(() => this.draw()).observe(this.box);
    charts.add(this);
  }

  begin() {
    charts.add(this);
    const width = this.box.clientWidth, ratio = window.devicePixelRatio || 1;
    const height = typeof this.height === "function" ? this.height(width) : this.height;
    if (!width) return null;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.height = height + "px";
    const g = this.canvas.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, width, height);
    g.font = "12px system-ui, sans-serif";
    return { g, width, height };
  }

  tip(x, y, ...content) {
    this.hideTip();
    this.tipBox = el("div", { class: "tip" }, ...content);
    this.box.append(this.tipBox);
    const room = this.box.clientWidth - this.tipBox.offsetWidth - 4;
    this.tipBox.style.left = Math.max(0, Math.min(x + 14, room)) + "px";
    this.tipBox.style.top = Math.max(0, y + 14) + "px";
  }

  hideTip() {
    this.tipBox?.remove();
    this.tipBox = null;
  }
}

/* Lines over a common axis: hover to read, drag or + and - to zoom, double click or 0 to go back. */
class LineChart extends Canvas {
  constructor({ label, xLabel = "", yLabel = "", height = 260, scrub = null, shape = "line" }) {
    super(height, label);
    Object.assign(this, { label, xLabel, yLabel, scrub, shape, series: [], marks: [], view: null, cursor: null, hover: null });
    this.tools = el("div", { class: "tools" },
      el("button", { type: "button", textContent: "+", title: "Zoom in", "aria-label": "Zoom in: " + label, on: { click: () => this.zoom(0.5) } }),
      el("button", { type: "button", textContent: "−", title: "Zoom out", "aria-label": "Zoom out: " + label, on: { click: () => this.zoom(2) } }),
      el("button", { type: "button", textContent: "Whole", title: "Show the whole range", "aria-label": "Whole range: " + label, on: { click: () => this.setView(null) } }));
    this.box.append(this.tools);
    const c = this.canvas;
    c.addEventListener("pointermove", (e) => this.move(e));
    c.addEventListener("pointerleave", () => { this.hover = null; this.hideTip(); this.draw(); });
    c.addEventListener("pointerdown", (e) => this.press(e));
    c.addEventListener("pointerup", (e) => this.release(e));
    c.addEventListener("dblclick", () => this.setView(null));
    c.addEventListener("keydown", (e) => this.key(e));
    c.addEventListener("blur", () => { this.hover = null; this.hideTip(); this.draw(); });
  }

  set(series, marks = []) {
    this.series = series;
    this.marks = marks;
    this.draw();
  }

  setView(view) {
    this.view = view;
    this.canvas.dataset.view = view ? view.map((v) => number(v)).join(" to ") : "whole";
    this.draw();
  }

  extent() {
    let low = Infinity, high = -Infinity;
    for (const s of this.series) if (s.x.length) {
      low = Math.min(low, this.shape === "path" ? Math.min(...s.x) : s.x[0]);
      high = Math.max(high, this.shape === "path" ? Math.max(...s.x) : s.x[s.x.length - 1]);
    }
    return low > high ? [0, 1] : low === high ? [low - 0.5, high + 0.5] : [low, high];
  }

  zoom(factor) {
    const [a, b] = this.view || this.extent(), [low, high] = this.extent();
    const middle = this.hover ?? this.cursor ?? (a + b) / 2, half = ((b - a) * factor) / 2;
    const from = Math.max(low, middle - half), to = Math.min(high, middle + half);
    this.setView(to - from >= (high - low) * 0.999 ? null : [from, to]);
  }

  draw() {
    const begun = this.begin();
    if (!begun) return;
    const { g, width, height } = begun;
    const left = 58, right = 12, top = 30, bottom = this.xLabel ? 40 : 24;
    const [x0, x1] = this.view || this.extent();
    let low = Infinity, high = -Infinity;
    for (const s of this.series) for (let i = 0; i < s.x.length; i++) if (s.x[i] >= x0 && s.x[i] <= x1) {
      if (s.y[i] < low) low = s.y[i];
      if (s.y[i] > high) high = s.y[i];
    }
    if (low > high) [low, high] = [0, 1];
    const pad = (high - low || Math.abs(high) || 1) * 0.06;
    low -= pad; high += pad;
    const px = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
    const py = (y) => height - bottom - ((y - low) / (high - low)) * (height - top - bottom);
    this.plot = { px, py, x0, x1, left, right: width - right, top, bottom: height - bottom };
    const grid = css("--grid"), soft = css("--soft"), text = css("--text");
    g.strokeStyle = grid; g.fillStyle = soft; g.lineWidth = 1;
    g.textAlign = "right"; g.textBaseline = "middle";
    for (const y of ticks(low, high, (height - top - bottom) / 45)) {
      g.beginPath(); g.moveTo(left, py(y)); g.lineTo(width - right, py(y)); g.stroke();
      g.fillText(number(y, 3), left - 6, py(y));
    }
    g.textAlign = "center"; g.textBaseline = "top";
    for (const x of ticks(x0, x1, (width - left - right) / 80)) g.fillText(number(x, 3), Math.min(px(x), width - 16), height - bottom + 5);
    if (this.xLabel) g.fillText(this.xLabel, (left + width - right) / 2, height - 15);
    g.textAlign = "left"; g.textBaseline = "top"; g.fillStyle = text;
    g.fillText(this.yLabel, 4, 4, width - 150);
    if (!this.series.some((s) => s.x.length)) {
      g.fillStyle = soft; g.textAlign = "center";
      g.fillText("no values", (left + width - right) / 2, (top + height - bottom) / 2);
    }
    g.save();
    g.beginPath(); g.rect(left - 8, top - 14, width - left - right + 16, height - top - bottom + 20); g.clip();
    for (const s of this.series) this.line(g, s, px, py);
    if (this.dragging && Math.abs(this.dragging[1] - this.dragging[0]) > 4) {
      g.globalAlpha = 0.15; g.fillStyle = css("--accent");
      g.fillRect(Math.min(...this.dragging), top, Math.abs(this.dragging[1] - this.dragging[0]), height - top - bottom);
      g.globalAlpha = 1;
    }
    for (const x of [this.cursor, this.hover]) if (x !== null && x !== undefined) {
      g.strokeStyle = x === this.cursor ? css("--c1") : soft; g.lineWidth = x === this.cursor ? 2 : 1;
      g.beginPath(); g.moveTo(px(x), top - 8); g.lineTo(px(x), height - bottom); g.stroke();
    }
    g.textAlign = "center"; g.textBaseline = "bottom";
    for (const mark of this.marks) {
      g.strokeStyle = g.fillStyle = css("--c1"); g.lineWidth = 1.5;
      g.beginPath(); g.arc(px(mark.x), py(mark.y), 4, 0, 7); mark.hollow ? g.stroke() : g.fill();
      g.fillStyle = text; g.fillText(mark.text, px(mark.x), py(mark.y) - 5);
    }
    g.restore();
  }

  line(g, s, px, py) {
    g.strokeStyle = g.fillStyle = s.colour; g.lineWidth = s.width || 1.5; g.globalAlpha = s.alpha ?? 1;
    g.setLineDash(s.dash || []);
    if (s.low) {
      g.globalAlpha = 0.15; g.beginPath();
      s.x.forEach((x, i) => (i ? g.lineTo : g.moveTo).call(g, px(x), py(s.high[i])));
      for (let i = s.x.length - 1; i >= 0; i--) g.lineTo(px(s.x[i]), py(s.low[i]));
      g.fill(); g.globalAlpha = s.alpha ?? 1;
    }
    g.beginPath();
    for (let i = 0; i < s.x.length; i++) i ? g.lineTo(px(s.x[i]), py(s.y[i])) : g.moveTo(px(s.x[i]), py(s.y[i]));
    g.stroke(); g.setLineDash([]);
    const end = s.x.length - 1;
    if (s.x.length === 1 || (s.end === "dot" && end >= 0)) { g.beginPath(); g.arc(px(s.x[end]), py(s.y[end]), 3.5, 0, 7); g.fill(); }
    if (s.end === "cross" && end >= 0) {
      const x = px(s.x[end]), y = py(s.y[end]);
      g.globalAlpha = 1; g.lineWidth = 2.5; g.beginPath();
      g.moveTo(x - 5, y - 5); g.lineTo(x + 5, y + 5); g.moveTo(x - 5, y + 5); g.lineTo(x + 5, y - 5); g.stroke();
    }
    g.globalAlpha = 1;
  }

  at(event) {
    const { x0, x1, left, right } = this.plot, x = event.clientX - this.canvas.getBoundingClientRect().left;
    return Math.max(x0, Math.min(x1, x0 + ((x - left) / (right - left)) * (x1 - x0)));
  }

  move(event) {
    if (!this.plot) return;
    if (this.dragging) {
      this.dragging[1] = event.clientX - this.canvas.getBoundingClientRect().left;
      if (this.scrub) this.scrub(this.at(event));
    }
    if (this.shape === "path") return this.readPath(event);
    this.read(this.at(event), event.clientY - this.canvas.getBoundingClientRect().top);
  }

  read(x, y = 20) {
    this.hover = x;
    this.draw();
    const rows = this.series.filter((s) => s.name && s.x.length && !s.quiet).map((s) => [s, nearest(s.x, x)])
      .filter(([s, i]) => Math.abs(s.x[i] - x) <= (this.plot.x1 - this.plot.x0) * 0.06).slice(0, 16);
    const unit = this.xLabel.startsWith("step of") ? "step " + Math.round(x) : number(Math.round(x)) + " steps";
    const said = rows.map(([s, i]) => `${s.name}: ${number(s.y[i])}`);
    this.canvas.dataset.read = [unit, ...said].join("; ");
    this.tip(this.plot.px(x), y, el("b", { textContent: unit }),
      rows.map(([s, i], r) => { const dot = el("span", { class: "swatch" }); dot.style.background = s.colour; return el("div", {}, dot, said[r]); }));
  }

  readPath(event) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null;
    for (const s of this.series) for (let i = 0; i < s.x.length; i++) {
      const d = Math.hypot(this.plot.px(s.x[i]) - x, this.plot.py(s.y[i]) - y);
      if (d < 20 && (!best || d < best.d)) best = { d, s, i };
    }
    if (!best) return this.hideTip();
    const { s, i } = best;
    this.tip(x, y, el("b", { textContent: s.name }), el("div", { textContent: `${number(s.x[i])}, ${number(s.y[i])}` + (s.steps ? ` at ${number(s.steps[i])} steps` : "") }));
  }

  press(event) {
    if (event.button) return;
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    this.dragging = [x, x];
    this.canvas.setPointerCapture(event.pointerId);
    if (this.scrub) this.scrub(this.at(event));
  }

  release(event) {
    if (!this.dragging) return;
    const [a, b] = this.dragging;
    this.dragging = null;
    if (!this.scrub && this.shape !== "path" && Math.abs(a - b) > 8) {
      const { x0, x1, left, right } = this.plot, back = (p) => Math.max(x0, Math.min(x1, x0 + ((p - left) / (right - left)) * (x1 - x0)));
      this.setView([back(Math.min(a, b)), back(Math.max(a, b))]);
    } else this.draw();
  }

  key(event) {
    const [a, b] = this.view || this.extent(), step = (b - a) / 50;
    if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "0") this.setView(null);
    else if (event.key === "Escape") { this.hover = null; this.hideTip(); this.draw(); }
    else if (!this.scrub && this.plot && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
      const from = this.hover ?? (event.key === "ArrowRight" ? a : b);
      this.read(Math.max(a, Math.min(b, from + (event.key === "ArrowRight" ? step : -step))));
      announce(this.canvas.dataset.read);
    } else return;
    event.preventDefault();
  }
}

function nearest(sorted, x) {
  let low = 0, high = sorted.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; sorted[middle] < x ? (low = middle) : (high = middle); }
  return Math.abs(sorted[low] - x) <= Math.abs(sorted[high] - x) ? low : high;
}

function valueAt(curve, x) {  // between two points of a curve; null outside it
  const { x: xs, y: ys } = curve;
  if (!xs.length || x < xs[0] || x > xs[xs.length - 1]) return null;
  let low = 0, high = xs.length - 1;
  while (high - low > 1) { const middle = (low + high) >> 1; xs[middle] <= x ? (low = middle) : (high = middle); }
  return xs[high] === xs[low] ? ys[low] : ys[low] + ((ys[high] - ys[low]) * (x - xs[low])) / (xs[high] - xs[low]);
}

/* The mean of some curves where all of them have values, and from the least to the most. */
function meanCurve(curves, points = 200) {
  curves = curves.filter((c) => c.x.length);
  if (!curves.length) return { x: [], y: [], low: [], high: [] };
  const from = Math.max(...curves.map((c) => c.x[0])), to = Math.min(...curves.map((c) => c.x[c.x.length - 1]));
  const grid = curves.length === 1 ? curves[0].x : Array.from({ length: points }, (_, i) => from + ((to - from) * i) / (points - 1));
  const out = { x: [], y: [], low: [], high: [] };
  if (from > to) return out;
  for (const x of grid) {
    const values = curves.map((c) => valueAt(c, x)).filter((v) => v !== null);
    out.x.push(x); out.y.push(values.reduce((a, b) => a + b, 0) / values.length);
    out.low.push(Math.min(...values)); out.high.push(Math.max(...values));
  }
  return out;
}

function shorten(text, length) {
  return text.length > length ? text.slice(0, Math.floor(length) - 1) + "…" : text;
}

/* Estimates with their intervals, one row each, as SVG. */
function intervalChart(rows, label) {
  const width = Math.max(280, Math.min(640, main.clientWidth - 60)), row = 30, names = width * 0.27, right = width * 0.17, height = rows.length * row + 30;
  const ends = rows.flatMap((r) => [r.value, r.low, r.high]).filter((v) => v !== null && v !== undefined);
  let low = Math.min(...ends), high = Math.max(...ends);
  const pad = (high - low || Math.abs(high) || 1) * 0.08;
  low -= pad; high += pad;
  const px = (v) => names + ((v - low) / (high - low)) * (width - names - right);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  for (const t of ticks(low, high, width / 130)) {
    root.append(svg("line", { x1: px(t), x2: px(t), y1: 0, y2: height - 24, stroke: "var(--grid)" }));
    root.append(svg("text", { x: px(t), y: height - 8, "text-anchor": "middle", class: "soft" }, number(t, 3)));
  }
  rows.forEach((r, i) => {
    const y = i * row + row / 2, colour = `var(--c${Math.max(0, data.methods.indexOf(r.method)) % PALETTE_SIZE})`;
    root.append(svg("text", { x: names - 10, y: y + 4, "text-anchor": "end" }, shorten(r.method, names / 7)));
    if (r.low !== null && r.low !== undefined) {
      root.append(svg("line", { x1: px(r.low), x2: px(r.high), y1: y, y2: y, stroke: colour, "stroke-width": 4, "stroke-linecap": "round", opacity: 0.55 }));
      for (const v of [r.low, r.high]) root.append(svg("line", { x1: px(v), x2: px(v), y1: y - 6, y2: y + 6, stroke: colour, "stroke-width": 2 }));
    }
    root.append(svg("circle", { cx: px(r.value), cy: y, r: 6, fill: r.low === null || r.low === undefined ? "var(--panel)" : colour, stroke: colour, "stroke-width": 2.5 }));
    root.append(svg("text", { x: width - right + 12, y: y + 4 }, number(r.value)));
  });
  return root;
}

/* Perceptually even and safe for the colour-blind: anchors of viridis, from dark to bright. */
const VIRIDIS = [[68, 1, 84], [71, 44, 122], [59, 81, 139], [44, 113, 142], [33, 144, 141], [39, 173, 129], [92, 200, 99], [170, 220, 50], [253, 231, 37]];

function viridis(share) {
  const at = Math.max(0, Math.min(1, share)) * (VIRIDIS.length - 1), i = Math.min(VIRIDIS.length - 2, Math.floor(at)), f = at - i;
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
    this.canvas.addEventListener("click", (e) => { const i = this.find(e, 30); if (i !== null) onPick(this.chart.steps[i]); });
  }

  set(chart) { this.chart = chart; this.draw(); }

  show(step) { this.step = step; this.draw(); }

  place(i) {
    const side = Math.min(this.box.clientWidth, 420) - 28, left = (this.box.clientWidth - side) / 2;
    return [left + (this.chart.x[i] / 1000) * side, 14 + (1 - this.chart.y[i] / 1000) * side];
  }

  find(event, reach = 14) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null, near = reach;
    for (let i = 0; i < this.chart.steps.length; i++) {
      const [a, b] = this.place(i), d = Math.hypot(a - x, b - y);
      if (d < near) { near = d; best = i; }
    }
    return best;
  }

  draw() {
    const begun = this.begin();
    if (!begun || !this.chart.steps.length) return;
    const { g } = begun, { steps } = this.chart, last = steps[steps.length - 1] || 1;
    const dim = document.documentElement.dataset.theme === "dark" ? 0.25 : 0;  // its darkest colours would be lost on dark
    g.strokeStyle = css("--soft"); g.globalAlpha = 0.35; g.lineWidth = 0.8; g.beginPath();
    steps.forEach((_, i) => (i ? g.lineTo : g.moveTo).call(g, ...this.place(i)));
    g.stroke(); g.globalAlpha = 1;
    steps.forEach((step, i) => { g.fillStyle = viridis(dim + (1 - dim) * (step / last)); g.beginPath(); g.arc(...this.place(i), 3, 0, 7); g.fill(); });
    const now = nearest(steps, this.step);
    g.strokeStyle = css("--c1"); g.lineWidth = 2; g.beginPath();
    for (let i = Math.max(0, now - 10); i <= now; i++) (i === Math.max(0, now - 10) ? g.moveTo : g.lineTo).call(g, ...this.place(i));
    g.stroke();
    const [x, y] = this.place(now);
    g.fillStyle = css("--page"); g.beginPath(); g.arc(x, y, 7, 0, 7); g.fill(); g.stroke();
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
    Object.assign(this, { floor, marks, values, low, high, log, text });
    this.cells = [];
    floor.forEach((row, r) => [...row].forEach((cell, c) => { if (cell === "1") this.cells.push([r, c]); }));
    this.draw();
  }

  share(value) {
    const f = this.log ? Math.log1p : (v) => v, a = f(this.low), b = f(this.high);
    return b > a ? (f(value) - a) / (b - a) : 0.5;
  }

  draw() {
    const begun = this.begin();
    if (!begun || !this.floor) return;
    const { g, width, height } = begun, side = this.floor.length, size = Math.min(width, height) / side, left = (width - size * side) / 2;
    this.layout = { size, left };
    const put = (r, c, colour) => { g.fillStyle = colour; g.fillRect(Math.floor(left + c * size), Math.floor(r * size), Math.ceil(size), Math.ceil(size)); };
    for (let r = 0; r < side; r++) for (let c = 0; c < side; c++) put(r, c, css("--line"));
    this.cells.forEach(([r, c], i) => {
      const value = this.values?.[i];
      const blank = value === null || value === undefined || (this.log && value === 0);
      put(r, c, blank ? css("--page") : viridis(this.share(value)));
    });
    g.textAlign = "center"; g.textBaseline = "middle"; g.font = `600 ${Math.max(9, size * 0.62)}px system-ui, sans-serif`;
    for (const { what, row, column } of this.marks) {
      g.lineWidth = 3; g.strokeStyle = "#000"; g.fillStyle = "#fff";
      const at = [left + (column + 0.5) * size, (row + 0.55) * size], sign = { start: "S", key: "K", lock: "L", treasure: "T" }[what];
      g.strokeText(sign, ...at); g.fillText(sign, ...at);
    }
  }

  point(event) {
    if (!this.layout) return;
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const c = Math.floor((x - this.layout.left) / this.layout.size), r = Math.floor(y / this.layout.size);
    const i = this.cells.findIndex(([a, b]) => a === r && b === c);
    if (i < 0 || !this.values) return this.hideTip();
    this.tip(x, y, el("div", { textContent: `row ${r}, column ${c}: ${this.values[i] === null ? "not asked" : number(this.values[i]) + " " + this.text}` }));
  }
}

function announce(text) {
  document.getElementById("live").textContent = text;
}
