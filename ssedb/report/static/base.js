/* Elements, numbers, colours and canvases for all views. Text from the data is only ever set as text. */
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
  const span = high - low || 1,
    rough = span / Math.max(count, 1),
    power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((m) => m * power >= rough) * power,
    found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * span; i++)
    found.push(Math.abs(i * step) < 1e-12 * span ? 0 : i * step);
  return found;
}

function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/* The name of the colour of a method: the same in every figure, gray for the random agent. */
function methodColourName(method) {
  const look = data.looks[method] ?? 0;
  return look < 0 ? "--soft" : "--c" + (look % PALETTE_SIZE);
}

function methodColour(method) {
  return css(methodColourName(method));
}

function methodDash(method) {
  // past the colours, dashes tell methods apart
  return [[], [7, 3], [2, 3], [9, 3, 2, 3]][Math.floor(Math.max(0, data.looks[method] ?? 0) / PALETTE_SIZE) % 4];
}

function redrawAll() {
  for (const chart of charts) chart.canvas.isConnected ? chart.draw() : charts.delete(chart);
}

/* Canvas at the screen's resolution that redraws when its size or the theme changes. */
class Canvas {
  constructor(height, label) {
    this.height = height;
    this.canvas = el("canvas", { tabIndex: 0, role: "img", "aria-label": label });
    this.box = el("div", { class: "chart" }, this.canvas);
    new ResizeObserver(() => this.draw()).observe(this.box);
    charts.add(this);
  }

  draw() {
    throw new Error("a subclass draws");
  }

  begin() {
    charts.add(this);
    const width = this.box.clientWidth,
      ratio = window.devicePixelRatio || 1;
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

function announce(text) {
  document.getElementById("live").textContent = text;
}
