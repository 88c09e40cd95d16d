/* Line charts: hover to read, drag or + and - to zoom, double click or 0 to go back. */
"use strict";

/* Lines over a common axis. */
class LineChart extends Canvas {
  constructor({ label, xLabel = "", yLabel = "", height = 260, scrub = null, shape = "line" }) {
    super(height, label);
    this.label = label;
    this.xLabel = xLabel;
    this.yLabel = yLabel;
    this.scrub = scrub;
    this.shape = shape;
    this.fromZero = false; // of the vertical axis
    this.series = [];
    this.marks = [];
    this.view = null;
    this.cursor = null;
    this.hover = null;
    this.tools = el(
      "div",
      { class: "tools" },
      el("button", {
        type: "button",
        textContent: "+",
        title: "Zoom in",
        "aria-label": "Zoom in: " + label,
        on: { click: () => this.zoom(0.5) },
      }),
      el("button", {
        type: "button",
        textContent: "−",
        title: "Zoom out",
        "aria-label": "Zoom out: " + label,
        on: { click: () => this.zoom(2) },
      }),
      el("button", {
        type: "button",
        textContent: "Whole",
        title: "Show the whole range",
        "aria-label": "Whole range: " + label,
        on: { click: () => this.setView(null) },
      }),
    );
    this.box.append(this.tools);
    const c = this.canvas;
    c.addEventListener("pointermove", (e) => this.move(e));
    c.addEventListener("pointerleave", () => {
      this.hover = null;
      this.hideTip();
      this.draw();
    });
    c.addEventListener("pointerdown", (e) => this.press(e));
    c.addEventListener("pointerup", () => this.release());
    c.addEventListener("dblclick", () => this.setView(null));
    c.addEventListener("keydown", (e) => this.key(e));
    c.addEventListener("blur", () => {
      this.hover = null;
      this.hideTip();
      this.draw();
    });
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
    let low = Infinity,
      high = -Infinity;
    for (const s of this.series)
      if (s.x.length) {
        low = Math.min(low, this.shape === "path" ? Math.min(...s.x) : s.x[0]);
        high = Math.max(high, this.shape === "path" ? Math.max(...s.x) : s.x[s.x.length - 1]);
      }
    if (this.shape === "path") [low, high] = [Math.min(low, 0), Math.max(high, 0)]; // the origin is shown
    return low > high ? [0, 1] : low === high ? [low - 0.5, high + 0.5] : [low, high];
  }

  zoom(factor) {
    const [a, b] = this.view || this.extent(),
      [low, high] = this.extent();
    const middle = this.hover ?? this.cursor ?? (a + b) / 2,
      half = ((b - a) * factor) / 2;
    const from = Math.max(low, middle - half),
      to = Math.min(high, middle + half);
    this.setView(to - from >= (high - low) * 0.999 ? null : [from, to]);
  }

  draw() {
    const begun = this.begin();
    if (!begun) return;
    const { g, width, height } = begun;
    const left = 58,
      right = 12,
      top = 30,
      bottom = this.xLabel ? 40 : 24;
    const [x0, x1] = this.view || this.extent();
    let low = Infinity,
      high = -Infinity;
    for (const s of this.series)
      for (let i = 0; i < s.x.length; i++)
        if (s.x[i] >= x0 && s.x[i] <= x1) {
          if (s.y[i] < low) low = s.y[i];
          if (s.y[i] > high) high = s.y[i];
        }
    if (low > high) [low, high] = [0, 1];
    if (this.shape === "path") [low, high] = [Math.min(low, 0), Math.max(high, 0)];
    const pad = (high - low || Math.abs(high) || 1) * 0.06;
    low = this.fromZero ? 0 : low - pad;
    high += pad;
    const px = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
    const py = (y) => height - bottom - ((y - low) / (high - low)) * (height - top - bottom);
    this.plot = { px, py, x0, x1, left, right: width - right, top, bottom: height - bottom };
    const grid = css("--grid"),
      soft = css("--soft"),
      text = css("--text");
    g.strokeStyle = grid;
    g.fillStyle = soft;
    g.lineWidth = 1;
    g.textAlign = "right";
    g.textBaseline = "middle";
    for (const y of ticks(low, high, (height - top - bottom) / 45)) {
      g.beginPath();
      g.moveTo(left, py(y));
      g.lineTo(width - right, py(y));
      g.stroke();
      g.fillText(number(y, 3), left - 6, py(y));
    }
    g.textAlign = "center";
    g.textBaseline = "top";
    for (const x of ticks(x0, x1, (width - left - right) / 80))
      g.fillText(number(x, 3), Math.min(px(x), width - 16), height - bottom + 5);
    if (this.xLabel) g.fillText(this.xLabel, (left + width - right) / 2, height - 15);
    g.textAlign = "left";
    g.textBaseline = "top";
    g.fillStyle = text;
    g.fillText(this.yLabel, 4, 4, width - 150);
    if (!this.series.some((s) => s.x.length)) {
      g.fillStyle = soft;
      g.textAlign = "center";
      g.fillText("no values", (left + width - right) / 2, (top + height - bottom) / 2);
    }
    g.save();
    g.beginPath();
    g.rect(left - 8, top - 14, width - left - right + 16, height - top - bottom + 20);
    g.clip();
    for (const s of this.series) this.line(g, s, px, py);
    if (this.dragging && Math.abs(this.dragging[1] - this.dragging[0]) > 4) {
      g.globalAlpha = 0.15;
      g.fillStyle = css("--accent");
      g.fillRect(Math.min(...this.dragging), top, Math.abs(this.dragging[1] - this.dragging[0]), height - top - bottom);
      g.globalAlpha = 1;
    }
    for (const x of [this.cursor, this.hover])
      if (x !== null && x !== undefined) {
        g.strokeStyle = x === this.cursor ? css("--c1") : soft;
        g.lineWidth = x === this.cursor ? 2 : 1;
        g.beginPath();
        g.moveTo(px(x), top - 8);
        g.lineTo(px(x), height - bottom);
        g.stroke();
      }
    g.textAlign = "center";
    g.textBaseline = "bottom";
    for (const mark of this.marks) {
      g.strokeStyle = g.fillStyle = css("--c1");
      g.lineWidth = 1.5;
      g.beginPath();
      g.arc(px(mark.x), py(mark.y), 4, 0, 7);
      mark.hollow ? g.stroke() : g.fill();
      g.fillStyle = text;
      g.fillText(mark.text, px(mark.x), py(mark.y) - 5);
    }
    g.restore();
  }

  line(g, s, px, py) {
    g.strokeStyle = g.fillStyle = s.colour;
    g.lineWidth = s.width || 1.5;
    g.globalAlpha = s.alpha ?? 1;
    g.setLineDash(s.dash || []);
    if (s.low) {
      g.globalAlpha = 0.15;
      g.beginPath();
      s.x.forEach((x, i) => (i ? g.lineTo : g.moveTo).call(g, px(x), py(s.high[i])));
      for (let i = s.x.length - 1; i >= 0; i--) g.lineTo(px(s.x[i]), py(s.low[i]));
      g.fill();
      g.globalAlpha = s.alpha ?? 1;
    }
    g.beginPath();
    for (let i = 0; i < s.x.length; i++) i ? g.lineTo(px(s.x[i]), py(s.y[i])) : g.moveTo(px(s.x[i]), py(s.y[i]));
    g.stroke();
    g.setLineDash([]);
    const end = s.x.length - 1;
    if (s.x.length === 1 || (s.end === "dot" && end >= 0)) {
      g.beginPath();
      g.arc(px(s.x[end]), py(s.y[end]), 3.5, 0, 7);
      g.fill();
    }
    if (s.end === "cross" && end >= 0) {
      const x = px(s.x[end]),
        y = py(s.y[end]);
      g.globalAlpha = 1;
      g.lineWidth = 2.5;
      g.beginPath();
      g.moveTo(x - 5, y - 5);
      g.lineTo(x + 5, y + 5);
      g.moveTo(x - 5, y + 5);
      g.lineTo(x + 5, y - 5);
      g.stroke();
    }
    g.globalAlpha = 1;
  }

  at(event) {
    const { x0, x1, left, right } = this.plot,
      x = event.clientX - this.canvas.getBoundingClientRect().left;
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
    const rows = this.series
      .filter((s) => s.name && s.x.length && !s.quiet)
      .map((s) => [s, nearest(s.x, x)])
      .filter(([s, i]) => Math.abs(s.x[i] - x) <= (this.plot.x1 - this.plot.x0) * 0.06)
      .slice(0, 16);
    const unit = this.xLabel.startsWith("step of") ? "step " + Math.round(x) : number(Math.round(x)) + " steps";
    const said = rows.map(([s, i]) => `${s.name}: ${number(s.y[i])}`);
    this.canvas.dataset.read = [unit, ...said].join("; ");
    this.tip(
      this.plot.px(x),
      y,
      el("b", { textContent: unit }),
      rows.map(([s], r) => {
        const dot = el("span", { class: "swatch" });
        dot.style.background = s.colour;
        return el("div", {}, dot, said[r]);
      }),
    );
  }

  readPath(event) {
    const box = this.canvas.getBoundingClientRect(),
      x = event.clientX - box.left,
      y = event.clientY - box.top;
    let best = null;
    for (const s of this.series)
      for (let i = 0; i < s.x.length; i++) {
        const d = Math.hypot(this.plot.px(s.x[i]) - x, this.plot.py(s.y[i]) - y);
        if (d < 20 && (!best || d < best.d)) best = { d, s, i };
      }
    if (!best) return this.hideTip();
    const { s, i } = best;
    this.tip(
      x,
      y,
      el("b", { textContent: s.name }),
      el("div", {
        textContent: `${number(s.x[i])}, ${number(s.y[i])}` + (s.steps ? ` at ${number(s.steps[i])} steps` : ""),
      }),
    );
  }

  press(event) {
    if (event.button) return;
    const x = event.clientX - this.canvas.getBoundingClientRect().left;
    this.dragging = [x, x];
    this.canvas.setPointerCapture(event.pointerId);
    if (this.scrub) this.scrub(this.at(event));
  }

  release() {
    if (!this.dragging) return;
    const [a, b] = this.dragging;
    this.dragging = null;
    if (!this.scrub && this.shape !== "path" && Math.abs(a - b) > 8) {
      const { x0, x1, left, right } = this.plot,
        back = (p) => Math.max(x0, Math.min(x1, x0 + ((p - left) / (right - left)) * (x1 - x0)));
      this.setView([back(Math.min(a, b)), back(Math.max(a, b))]);
    } else this.draw();
  }

  key(event) {
    const [a, b] = this.view || this.extent(),
      step = (b - a) / 50;
    if (event.key === "+" || event.key === "=") this.zoom(0.5);
    else if (event.key === "-") this.zoom(2);
    else if (event.key === "0") this.setView(null);
    else if (event.key === "Escape") {
      this.hover = null;
      this.hideTip();
      this.draw();
    } else if (!this.scrub && this.plot && (event.key === "ArrowRight" || event.key === "ArrowLeft")) {
      const from = this.hover ?? (event.key === "ArrowRight" ? a : b);
      this.read(Math.max(a, Math.min(b, from + (event.key === "ArrowRight" ? step : -step))));
      announce(this.canvas.dataset.read);
    } else return;
    event.preventDefault();
  }
}

function nearest(sorted, x) {
  let low = 0,
    high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    sorted[middle] < x ? (low = middle) : (high = middle);
  }
  return Math.abs(sorted[low] - x) <= Math.abs(sorted[high] - x) ? low : high;
}

function valueAt(curve, x) {
  // between two points of a curve; null outside it
  const { x: xs, y: ys } = curve;
  if (!xs.length || x < xs[0] || x > xs[xs.length - 1]) return null;
  let low = 0,
    high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    xs[middle] <= x ? (low = middle) : (high = middle);
  }
  return xs[high] === xs[low] ? ys[low] : ys[low] + ((ys[high] - ys[low]) * (x - xs[low])) / (xs[high] - xs[low]);
}

/* The mean of some curves where all of them have values, and from the least to the most. */
function meanCurve(curves, points = 200) {
  curves = curves.filter((c) => c.x.length);
  if (!curves.length) return { x: [], y: [], low: [], high: [] };
  const from = Math.max(...curves.map((c) => c.x[0])),
    to = Math.min(...curves.map((c) => c.x[c.x.length - 1]));
  const grid =
    curves.length === 1 ? curves[0].x : Array.from({ length: points }, (_, i) => from + ((to - from) * i) / (points - 1));
  const out = { x: [], y: [], low: [], high: [] };
  if (from > to) return out;
  for (const x of grid) {
    const values = curves.map((c) => valueAt(c, x)).filter((v) => v !== null);
    out.x.push(x);
    out.y.push(values.reduce((a, b) => a + b, 0) / values.length);
    out.low.push(Math.min(...values));
    out.high.push(Math.max(...values));
  }
  return out;
}
