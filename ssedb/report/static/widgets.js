/* Tables, badges, choices and the legend, and the lines of a task, for the views. */
"use strict";

const hidden = new Set(); // methods that the reader has switched off, in every view
let showRuns = true;

/* A number as `ssedb stats` writes it. */
class Shown {
  constructor(text) {
    this.text = text || "–";
  }
}

function table(headers, rows, caption) {
  const cells = (row, tag) =>
    row.map((c) => {
      if (c instanceof Shown) return el(tag, { class: "number" }, c.text);
      const value = c instanceof Node ? c : typeof c === "number" || c === null ? number(c) : String(c);
      return el(tag, { class: typeof c === "number" || c === null ? "number" : "" }, value);
    });
  return el(
    "div",
    { class: "scroll" },
    el(
      "table",
      {},
      caption ? el("caption", { textContent: caption }) : null,
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          headers.map((h) => el("th", { scope: "col" }, h)),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map((r) => el("tr", {}, cells(r, "td"))),
      ),
    ),
  );
}

function badge(status, text = status) {
  return el("span", { class: `badge ${status}`, textContent: text });
}

function selectOf(label, options, listener) {
  const select = el(
    "select",
    { "aria-label": label, on: { change: () => listener(select.value) } },
    options.map(([value, text]) => el("option", { value, textContent: text })),
  );
  return el("label", {}, label, select);
}

function unique(values) {
  return [...new Set(values)];
}

/* A method without the module of its class, unless another method would read the same. */
function shortName(method) {
  const short = (name) => name.replace(/^[\w.]+:/, "");
  return data.methods.some((m) => m !== method && short(m) === short(method)) ? method : short(method);
}

/* The short name of a method for a table, with the whole one as its tooltip. */
function methodCell(method) {
  return el("span", { textContent: shortName(method), title: method });
}

/* A noise as headings and lists name it; "none" is the name of a bonus, too. */
function noiseName(noise) {
  return noise === "none" ? "no noise" : noise;
}

function taskName(env, noise) {
  return `${env}, ${noiseName(noise)}`;
}

/** Menu of the tasks of a view, or the name of the only one. */
function taskChoice(tasks, listener) {
  if (tasks.length === 1) return el("b", { textContent: taskName(...tasks[0]) });
  const options = tasks.map((t, i) => [i, taskName(...t)]);
  return selectOf("Task", options, (i) => listener(tasks[i]));
}

function tasksOf(runs) {
  return unique(runs.map((r) => JSON.stringify([r.env, r.noise]))).map((t) => JSON.parse(t));
}

/* Buttons that switch methods off and on. */
function legend(methods, redraw) {
  return el(
    "div",
    { class: "controls", role: "group", "aria-label": "Methods" },
    methods.map((method) => {
      const swatch = el("span", { class: "swatch" });
      swatch.style.background = `var(${methodColourName(method)})`;
      const button = el(
        "button",
        {
          type: "button",
          class: "toggle",
          "aria-pressed": String(!hidden.has(method)),
          title: `Hide or show ${method}`,
          on: {
            click: () => {
              hidden.has(method) ? hidden.delete(method) : hidden.add(method);
              button.setAttribute("aria-pressed", String(!hidden.has(method)));
              redraw();
            },
          },
        },
        swatch,
        shortName(method),
      );
      return button;
    }),
  );
}

/* The runs of a task as lines of a chart: each run thin, each method's mean over its finished runs thick. */
function seriesOf(runs, key) {
  const found = [];
  for (const method of data.methods) {
    if (hidden.has(method)) continue;
    const own = runs.filter((r) => r.method === method && r.curves[key]),
      finished = own.filter((r) => r.status === "finished");
    for (const r of own) {
      const done = r.status === "finished",
        only = done && finished.length === 1;
      if (!showRuns && done && !only) continue;
      found.push({
        name: `${method}, seed ${r.seed}${done ? "" : ` (${r.status})`}`,
        quiet: done && !only,
        colour: methodColour(method),
        dash: done ? methodDash(method) : [4, 4],
        width: only ? 2.2 : 1,
        alpha: only ? 1 : done ? 0.45 : 0.8,
        end: done ? null : "cross",
        ...r.curves[key],
      });
    }
    if (finished.length > 1)
      found.push({
        name: `${method}, mean of ${finished.length}`,
        colour: methodColour(method),
        dash: methodDash(method),
        width: 2.4,
        ...meanCurve(finished.map((r) => r.curves[key])),
      });
  }
  return found;
}
