/* The information plane, whether each bottleneck is open, and the collapse alarm. */
"use strict";

function information(root) {
  const runs = data.runs.filter((r) => r.curves.i_upper);
  root.append(el("h2", { textContent: "Information plane" }));
  if (!runs.length)
    return root.append(
      el("p", { textContent: "No run has a bottleneck: only DB and its variants log I_upper, I_pred and I_nce." }),
    );
  const inState = (state) => runs.filter((r) => r.neck?.state === state),
    shut = inState("shut"),
    unopened = inState("not opened yet");
  const listOf = (several) =>
    el(
      "ul",
      {},
      several.map((r) =>
        el(
          "li",
          {},
          el("b", { textContent: r.name }),
          `: I_upper ${number(r.neck.i_upper, 3)}, I_nce ${number(Math.abs(r.neck.over), 3)} ${r.neck.over < 0 ? "below" : "above"} chance`,
        ),
      ),
    );
  root.append(
    el(
      "div",
      { class: `notice ${shut.length ? "bad" : unopened.length ? "" : "good"}` },
      ...(shut.length ? [badge("alarm", "collapse alarm"), " the bottleneck is shut in", listOf(shut)] : []),
      ...(unopened.length
        ? [badge("unfinished", "not opened yet"), " z does not tell about the next state so far in", listOf(unopened)]
        : []),
      ...(shut.length || unopened.length
        ? []
        : [badge("finished", "open"), " the bottleneck is open at the end of every run. "]),
      el("span", { class: "soft", textContent: data.rule }),
    ),
  );
  const all = tasksOf(runs);
  let task = all[0];
  const body = el("div", { class: "grid" });
  const redraw = () => {
    const own = runs.filter((r) => r.env === task[0] && r.noise === task[1]),
      plane = new LineChart({
        label: "Information plane: how much z keeps of its input against how much z tells about the next state",
        xLabel: "I_upper: information that z keeps (nats)",
        yLabel: "I_nce above blind guessing (nats)",
        height: 300,
        shape: "path",
      });
    plane.series = own
      .filter((r) => !hidden.has(r.method) && r.curves.i_nce && r.curves.i_nce_chance)
      .map((r) => {
        const steps = r.curves.i_nce.x.filter(
          (x) => valueAt(r.curves.i_upper, x) !== null && valueAt(r.curves.i_nce_chance, x) !== null,
        );
        return {
          name: `${r.method}, seed ${r.seed}`,
          colour: methodColour(r.method),
          dash: r.status === "finished" ? methodDash(r.method) : [4, 4],
          end: r.status === "finished" ? "dot" : "cross",
          steps,
          x: steps.map((x) => valueAt(r.curves.i_upper, x)),
          y: steps.map((x) => valueAt(r.curves.i_nce, x) - valueAt(r.curves.i_nce_chance, x)),
        };
      });
    const time = (key, note, other) => {
      const chart = new LineChart({
        label: `${data.labels[key]} along training`,
        xLabel: "agent steps",
        yLabel: data.labels[key],
        height: 220,
      });
      chart.series = seriesOf(own, key);
      if (other) {
        const chance = own.find((r) => r.curves[other] && !hidden.has(r.method));
        if (chance)
          chart.series.push({
            name: "blind guessing",
            colour: css("--soft"),
            dash: [2, 4],
            width: 1.5,
            ...chance.curves[other],
          });
      }
      return el("section", { class: "panel" }, chart.box, el("div", { class: "soft", textContent: note }));
    };
    const has = (key) => own.some((r) => r.curves[key]);
    body.replaceChildren(
      el(
        "section",
        { class: "panel" },
        plane.box,
        el("div", {
          class: "soft",
          textContent:
            "Each line is a run, from its start to the mark at its end. Further right, z keeps more of its input. Further up, z tells more about the next state. A run that ends near the origin has a shut bottleneck.",
        }),
      ),
      time("i_upper", "Information that z keeps of its input. Near 0 the bottleneck is shut."),
      time("i_pred", "How likely the encoded next state is under the prediction from z. Higher is better."),
      time("i_nce", "How well z tells the true next state from others. The dotted line is blind guessing.", "i_nce_chance"),
      ...(has("rank_z") ? [time("rank_z", "At 1, z varies in one direction only: all observations look nearly alike in z.")] : []),
      ...(has("rank_state") ? [time("rank_state", "At 1, the encoder has collapsed: it hardly tells observations apart.")] : []),
    );
  };
  root.append(
    el(
      "div",
      { class: "controls" },
      taskChoice(all, (chosen) => {
        task = chosen;
        redraw();
      }),
    ),
    legend(
      unique(runs.map((r) => r.method)).sort((a, b) => data.methods.indexOf(a) - data.methods.indexOf(b)),
      redraw,
    ),
    body,
  );
  redraw();
}
