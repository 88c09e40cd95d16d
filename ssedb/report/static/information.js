/* The information plane, whether each bottleneck is open, and the collapse alarm. */
"use strict";

function information(root) {
  const runs = data.runs.filter((r) => r.curves.i_upper);
  root.append(el("h2", { textContent: "Information plane" }));
  if (!runs.length)
    return root.append(
      el("p", { textContent: "No run has a bottleneck: only DB and its kin log I_upper, I_pred and I_nce." }),
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
        ? [badge("unfinished", "not opened yet"), " z tells nothing of the next state so far in", listOf(unopened)]
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
        label: "Information plane: what z keeps against what it tells of the next state",
        xLabel: "I_upper: nats that z keeps",
        yLabel: "I_nce above chance (nats)",
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
            "One line a run, from its beginning to the dot. Right: z keeps more. Up: z tells more about what comes next. Near the origin it is shut.",
        }),
      ),
      time("i_upper", "Near 0 the bottleneck is shut."),
      time("i_pred", "Log-likelihood of the encoded next state under the prediction from z."),
      time("i_nce", "At the dotted line nothing has been learned.", "i_nce_chance"),
      ...(has("rank_z") ? [time("rank_z", "1 means that all observations look alike in z.")] : []),
      ...(has("rank_state") ? [time("rank_state", "1 means that the encoder has collapsed.")] : []),
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
