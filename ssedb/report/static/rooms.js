/* Visits and bonus of each cell of Rooms, along training. */
"use strict";

function rooms(root) {
  root.append(el("h2", { textContent: "Rooms" }));
  const withMaps = data.rooms.filter((m) => m.steps.length),
    without = data.rooms.filter((m) => !m.steps.length).map((m) => data.runs[m.run]);
  const note = without.length
    ? el("p", {
        class: "soft",
        textContent: `Without snapshots (made by an older version, or not begun): ${without.map((r) => r.name).join(", ")}.`,
      })
    : null;
  if (!withMaps.length)
    return root.append(
      el("p", {
        textContent:
          "No run on Rooms has snapshots of its map. Runs take about fifty along the way; those of older versions took none.",
      }),
      ...(note ? [note] : []),
    );
  const all = tasksOf(withMaps.map((m) => data.runs[m.run]));
  let task = all[0],
    what = "visits",
    share = 1,
    timer = null;
  const seeds = unique(withMaps.map((m) => data.runs[m.run].seed)).sort();
  let seed = seeds[0];
  const body = el("div", { class: "grid" }),
    said = el("b");
  const slider = el("input", {
    type: "range",
    min: 0,
    max: 100,
    value: 100,
    "aria-label": "Share of the training done",
    on: {
      input: () => {
        share = slider.value / 100;
        update();
      },
    },
  });
  let shown = [];
  const build = () => {
    const own = data.methods
      .map((method) => {
        const of = withMaps.filter((m) => {
          const r = data.runs[m.run];
          return r.method === method && r.env === task[0] && r.noise === task[1];
        });
        return of.find((m) => data.runs[m.run].seed === seed) || of[0];
      })
      .filter(Boolean);
    shown = own.map((map) => ({
      map,
      run: data.runs[map.run],
      heat: new HeatMap(`Map of ${what} of ${data.runs[map.run].method}`),
      ends: el("div", { class: "scale-ends" }),
      title: el("h3"),
      scale: el("div", { class: "scale" }),
    }));
    for (const s of shown) s.scale.style.background = `linear-gradient(90deg, ${VIRIDIS.map((c) => `rgb(${c})`).join(",")})`;
    body.replaceChildren(...shown.map((s) => el("section", { class: "panel heat" }, s.title, s.heat.box, s.scale, s.ends)));
    update();
  };
  const update = () => {
    const frames = shown.map((s) => {
      const last = s.run.asked || s.map.steps.at(-1);
      return nearest(s.map.steps, Math.min(s.map.steps.at(-1), share * last));
    });
    const most = Math.max(1, ...shown.flatMap((s, i) => s.map.visits[frames[i]]));
    let steps = 0;
    shown.forEach((s, i) => {
      const values = s.map[what][frames[i]],
        known = (values || []).filter((v) => v !== null);
      const low = what === "visits" ? 0 : Math.min(...known),
        high = what === "visits" ? most : Math.max(...known);
      steps = Math.max(steps, s.map.steps[frames[i]]);
      s.title.replaceChildren(
        `${s.run.method}, seed ${s.run.seed} `,
        ...(s.run.status === "finished" ? [] : [badge(s.run.status)]),
      );
      s.heat.set({
        floor: s.map.floor,
        marks: s.map.marks,
        values,
        low,
        high,
        log: what === "visits",
        text: what === "visits" ? "visits" : "bonus",
      });
      s.heat.canvas.setAttribute(
        "aria-label",
        `${what} of ${s.run.method} by cell after ${number(s.map.steps[frames[i]])} steps` +
          (known.length ? `, from ${number(Math.min(...known))} to ${number(Math.max(...known))}` : ""),
      );
      s.heat.canvas.dataset.steps = s.map.steps[frames[i]];
      s.ends.replaceChildren(
        ...(values
          ? [
              el("span", { textContent: number(low, 3) }),
              el("span", { textContent: what === "visits" ? "visits (log scale, the same for all)" : "bonus (own scale)" }),
              el("span", { textContent: number(high, 3) }),
            ]
          : [el("span", { textContent: "this method has no bonus" })]),
      );
    });
    said.textContent = `after ${number(steps)} steps`;
    slider.setAttribute("aria-valuetext", said.textContent);
  };
  const kinds = ["visits", "bonus"].map((kind) =>
    el("button", {
      type: "button",
      class: "choice",
      "aria-pressed": String(kind === what),
      textContent: kind === "visits" ? "Visits" : "Bonus",
      on: {
        click: () => {
          what = kind;
          kinds.forEach((b) => b.setAttribute("aria-pressed", String(b.textContent.toLowerCase() === kind)));
          update();
        },
      },
    }),
  );
  const play = el("button", {
    type: "button",
    textContent: "▶ Play",
    on: {
      click: () => {
        if (timer) {
          clearInterval(timer);
          timer = null;
          play.textContent = "▶ Play";
          return;
        }
        if (share >= 1) share = 0;
        play.textContent = "⏸ Pause";
        timer = setInterval(() => {
          share = Math.min(1, share + 0.02);
          slider.value = 100 * share;
          update();
          if (share >= 1 || root.hidden) play.click();
        }, 120);
      },
    },
  });
  root.append(
    el("p", {
      class: "soft",
      textContent:
        "Visits of each cell since the beginning, and the mean bonus in each cell (over fixed transitions, under the run's noise). Blank cells were never visited. S start, K key, L lock, T treasure.",
    }),
    el(
      "div",
      { class: "controls" },
      taskChoice(all, (chosen) => {
        task = chosen;
        build();
      }),
      seeds.length > 1
        ? selectOf(
            "Seed",
            seeds.map((s) => [s, s]),
            (s) => {
              seed = seeds.find((x) => String(x) === s);
              build();
            },
          )
        : null,
      el("span", { role: "group", "aria-label": "What is shown" }, kinds),
      play,
      said,
    ),
    el("div", { class: "slider" }, slider),
    body,
    ...(note ? [note] : []),
  );
  build();
}
