/* Learning curves of every env, noise and metric. */
"use strict";

function curves(root) {
  const keys = unique(data.runs.flatMap((r) => Object.keys(r.curves)));
  if (!keys.length)
    return root.append(el("h2", { textContent: "Curves" }), el("p", { textContent: "No run has logged anything yet." }));
  const having = (k) => data.runs.filter((r) => r.curves[k]).length;
  const first =
    ["human_score", "states_share", "score", "bonus_raw"].filter(having).sort((a, b) => having(b) - having(a))[0] || keys[0];
  let key = first,
    env = "";
  const noises = unique(data.runs.map((r) => r.noise)),
    on = new Set(noises),
    body = el("div", { class: "grid" }),
    note = el("p", { class: "soft" });
  const all = tasksOf(data.runs),
    drawn = new Map();
  const redraw = () => {
    const chosen = all.filter(([e, n]) => (!env || e === env) && on.has(n));
    const wanted = chosen.filter(([e, n]) => data.runs.some((r) => r.env === e && r.noise === n && r.curves[key]));
    body.replaceChildren(
      ...wanted.map(([e, n]) => {
        const name = taskName(e, n);
        if (!drawn.has(name))
          drawn.set(name, new LineChart({ label: `Curves of ${name}`, xLabel: "agent steps", height: 280 }));
        const chart = drawn.get(name),
          runs = data.runs.filter((r) => r.env === e && r.noise === n);
        chart.yLabel = data.labels[key];
        chart.fromZero = data.shares.includes(key);
        chart.set(seriesOf(runs, key));
        const last = el("details", {}, el("summary", { textContent: "Numbers at the end" }));
        last.addEventListener(
          "toggle",
          () =>
            last.open &&
            last.children.length < 2 &&
            last.append(
              table(
                ["method", "seed", "status", "last value"],
                runs
                  .filter((r) => r.curves[key])
                  .map((r) => [methodCell(r.method), String(r.seed), badge(r.status), r.curves[key].y.at(-1)]),
              ),
            ),
        );
        return el("section", { class: "panel" }, el("h3", { textContent: name }), chart.box, last);
      }),
    );
    const silent = chosen.filter((t) => !wanted.includes(t)).map((t) => taskName(...t));
    note.textContent = !chosen.length
      ? "Every noise is switched off."
      : silent.length
        ? `Without values of this metric: ${silent.join("; ")}.`
        : "";
  };
  const measures = selectOf(
    "Metric",
    [first, ...keys.filter((k) => k !== first)].map((k) => [k, data.labels[k]]),
    (k) => {
      key = k;
      redraw();
    },
  );
  const envs = unique(data.runs.map((r) => r.env));
  const noiseButtons = noises.map((n) => {
    const b = el("button", {
      type: "button",
      class: "toggle",
      "aria-pressed": "true",
      textContent: noiseName(n),
      on: {
        click: () => {
          on.has(n) ? on.delete(n) : on.add(n);
          b.setAttribute("aria-pressed", String(on.has(n)));
          redraw();
        },
      },
    });
    return b;
  });
  const single = el("input", {
    type: "checkbox",
    checked: true,
    on: {
      change: () => {
        showRuns = single.checked;
        redraw();
      },
    },
  });
  root.append(
    el("h2", { textContent: "Curves" }),
    el("p", {
      class: "soft",
      textContent:
        "Thin: single runs. Thick: the mean over a method's finished runs, with a band from the least to the most. A cross ends a run that did not finish. Drag over a chart to zoom, double click to go back; with the keyboard, arrows read and + − 0 zoom.",
    }),
    el(
      "div",
      { class: "controls" },
      measures,
      envs.length > 1
        ? selectOf("Environment", [["", "all"], ...envs.map((e) => [e, e])], (e) => {
            env = e;
            redraw();
          })
        : null,
      noises.length > 1
        ? el("span", { role: "group", "aria-label": "Noise", class: "controls" }, "Noise", noiseButtons)
        : null,
      el("label", {}, single, "single runs"),
    ),
    legend(data.methods, redraw),
    body,
    note,
  );
  redraw();
}
