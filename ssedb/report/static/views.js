/* The views: each fills its section when it is first looked at. */
"use strict";

const hidden = new Set();  // methods that the reader has switched off, in every view
let showRuns = true;

function table(headers, rows, caption) {
  const cells = (row, tag) => row.map((c) => {
    const value = c instanceof Node ? c : typeof c === "number" || c === null ? number(c) : String(c);
    return el(tag, { class: typeof c === "number" || c === null ? "number" : "" }, value);
  });
  return el("div", { class: "scroll" }, el("table", {}, caption ? el("caption", { textContent: caption }) : null,
    el("thead", {}, el("tr", {}, headers.map((h) => el("th", { scope: "col", textContent: h })))), el("tbody", {}, rows.map((r) => el("tr", {}, cells(r, "td"))))));
}

function badge(status, text = status) {
  return el("span", { class: `badge ${status}`, textContent: text });
}

function selectOf(label, options, listener) {
  const select = el("select", { "aria-label": label, on: { change: () => listener(select.value) } }, options.map(([value, text]) => el("option", { value, textContent: text })));
  return el("label", {}, label, select);
}

function unique(values) {
  return [...new Set(values)];
}

function taskName(env, noise) {
  return `${env}, ${noise === "none" ? "no noise" : noise}`;
}

function tasksOf(runs) {
  return unique(runs.map((r) => JSON.stringify([r.env, r.noise]))).map((t) => JSON.parse(t));
}

function interval(low, high) {
  return low === null || low === undefined ? "–" : `${number(low, 3)} to ${number(high, 3)}`;
}

/* Buttons that switch methods off and on. */
function legend(methods, redraw) {
  return el("div", { class: "controls", role: "group", "aria-label": "Methods" }, methods.map((method) => {
    const swatch = el("span", { class: "swatch" });
    swatch.style.background = `var(--c${data.methods.indexOf(method) % PALETTE_SIZE})`;
    const button = el("button", { type: "button", class: "toggle", "aria-pressed": String(!hidden.has(method)), title: "Hide or show", on: { click: () => {
      hidden.has(method) ? hidden.delete(method) : hidden.add(method);
      button.setAttribute("aria-pressed", String(!hidden.has(method)));
      redraw();
    } } }, swatch, method);
    return button;
  }));
}

function overview(root) {
  const count = (status) => data.runs.filter((r) => r.status === status).length;
  const several = (list, word) => card(list.length, list.length === 1 ? word : word + "s");
  const card = (value, text) => el("div", { class: "card" }, el("b", { textContent: value }), text);
  root.append(el("h2", { textContent: "Overview" }),
    el("div", { class: "cards" }, several(data.runs, "run"), several(unique(data.runs.map((r) => r.env)), "environment"), several(data.methods, "method"),
      card(number(data.runs.reduce((sum, r) => sum + r.steps, 0), 3), "agent steps"), ...["finished", "unfinished", "failed", "missing", "damaged"].filter((s) => s === "finished" || count(s)).map((s) => card(count(s), badge(s)))));
  const trouble = data.runs.filter((r) => r.status !== "finished");
  if (trouble.length) root.append(el("div", { class: "notice bad" }, el("b", { textContent: `${trouble.length} of ${data.runs.length} runs did not finish. ` }),
    "They are left out of the statistics, and drawn with a cross at their end.",
    el("ul", {}, trouble.slice(0, 40).map((r) => el("li", {}, badge(r.status), " ", el("b", { textContent: r.name }), r.reason ? `: ${r.reason}` : ""))), trouble.length > 40 ? `and ${trouble.length - 40} more` : ""));
  const holes = data.runs.filter((r) => r.not_finite.length);
  if (holes.length) root.append(el("div", { class: "notice bad" }, el("b", { textContent: "Values that are not finite: " }), "the curves have holes there.",
    el("ul", {}, holes.map((r) => el("li", { textContent: `${r.name}: ${r.not_finite.join(", ")}` })))));
  const shut = data.runs.filter((r) => r.neck?.collapsed);
  if (shut.length) root.append(el("div", { class: "notice bad" }, badge("alarm", "collapse alarm"), ` in ${shut.map((r) => r.name).join(", ")}: see `, el("a", { href: "#information", textContent: "the information plane" }), "."));
  if (!data.measures.length) return root.append(el("p", { textContent: "No run has finished with a score yet, so there is nothing to rank. The curves show how far the runs are." }));
  const body = el("div");
  root.append(el("div", { class: "controls" }, selectOf("Measure", data.measures.map((m, i) => [i, m.label]), (i) => measure(body, data.measures[i]))), body);
  measure(body, data.measures[0]);
}

function measure(body, m) {
  const better = m.better === "high" ? "higher is better" : "lower is better";
  const ranked = m.ranking.filter((r) => r.iqm !== undefined && r.iqm !== null);
  const tasks = ranked.length ? ranked[0].tasks : 0;
  const parts = [];
  if (ranked.length) {
    const alone = ranked.some((r) => r.iqm_low === null || r.iqm_low === undefined);
    parts.push(el("section", { class: "panel" }, el("h3", { textContent: `Ranking: ${m.label}` }),
      el("p", { class: "soft", textContent: `Interquartile mean over ${tasks} task${tasks === 1 ? "" : "s"} (an environment under a noise) that every method has, 95% bootstrap interval; ${better}.` + (alone ? " A hollow mark has one run per task and so no interval." : "") }),
      intervalChart(ranked.map((r) => ({ method: r.method, value: r.iqm, low: r.iqm_low, high: r.iqm_high })), `Ranking by ${m.label}: ${ranked.map((r) => `${r.method} ${number(r.iqm)}`).join(", ")}`),
      table(["method", "IQM", "95% interval", "mean", "median", "runs"], ranked.map((r) => [r.method, r.iqm, interval(r.iqm_low, r.iqm_high), r.mean, r.median, r.runs]))));
  } else parts.push(el("section", { class: "panel" }, el("h3", { textContent: "Ranking" }), el("p", { textContent: "No task was finished by every method, so they cannot be ranked together; see each task." })));
  const names = unique(m.improvements.map((r) => r.first));
  if (names.length > 1 && names.length <= 14) parts.push(el("section", { class: "panel" }, el("h3", { textContent: "Who beats whom" }), el("p", { class: "soft", textContent: "How probably a run of the row beats one of the column on the same task, with its 95% interval." }),
    table(["", ...names], names.map((a) => [a, ...names.map((b) => { const r = m.improvements.find((x) => x.first === a && x.second === b); return r ? `${Math.round(100 * r.probability)}% (${r.low === null ? "–" : `${Math.round(100 * r.low)} to ${Math.round(100 * r.high)}`})` : ""; })]))));
  parts.push(el("section", { class: "panel" }, el("h3", { textContent: "Task by task" }), table(["environment", "noise", "method", "mean", "95% interval", "runs", "left out"],
    m.conditions.map((r) => [r.env, r.noise, r.method, r.mean, interval(r.low, r.high), r.runs, r.left_out ? badge("unfinished", `${r.left_out} left out`) : "0"]))));
  body.replaceChildren(el("div", { class: "grid wide" }, parts));
}

/* The runs of a task as lines of a chart: each run thin, each method's mean over its finished runs thick. */
function seriesOf(runs, key) {
  const found = [];
  for (const method of data.methods) {
    if (hidden.has(method)) continue;
    const own = runs.filter((r) => r.method === method && r.curves[key]), finished = own.filter((r) => r.status === "finished");
    for (const r of own) {
      const done = r.status === "finished", only = done && finished.length === 1;
      if (!showRuns && done && !only) continue;
      found.push({ name: `${method}, seed ${r.seed}${done ? "" : ` (${r.status})`}`, quiet: done && !only, colour: methodColour(method), dash: done ? methodDash(method) : [4, 4],
        width: only ? 2.2 : 1, alpha: only ? 1 : done ? 0.45 : 0.8, end: done ? null : "cross", ...r.curves[key] });
    }
    if (finished.length > 1) found.push({ name: `${method}, mean of ${finished.length}`, colour: methodColour(method), dash: methodDash(method), width: 2.4, ...meanCurve(finished.map((r) => r.curves[key])) });
  }
  return found;
}

function curves(root) {
  const keys = unique(data.runs.flatMap((r) => Object.keys(r.curves)));
  if (!keys.length) return root.append(el("h2", { textContent: "Curves" }), el("p", { textContent: "No run has logged anything yet." }));
  const having = (k) => data.runs.filter((r) => r.curves[k]).length;
  const first = ["human_score", "states_share", "score", "bonus_raw"].filter(having).sort((a, b) => having(b) - having(a))[0] || keys[0];
  let key = first, env = "";
  const noises = unique(data.runs.map((r) => r.noise)), on = new Set(noises), body = el("div", { class: "grid" }), note = el("p", { class: "soft" });
  const all = tasksOf(data.runs), drawn = new Map();
  const redraw = () => {
    const chosen = all.filter(([e, n]) => (!env || e === env) && on.has(n));
    const wanted = chosen.filter(([e, n]) => data.runs.some((r) => r.env === e && r.noise === n && r.curves[key]));
    body.replaceChildren(...wanted.map(([e, n]) => {
      const name = taskName(e, n);
      if (!drawn.has(name)) drawn.set(name, new LineChart({ label: `Curves of ${name}`, xLabel: "agent steps", height: 280 }));
      const chart = drawn.get(name), runs = data.runs.filter((r) => r.env === e && r.noise === n);
      chart.yLabel = data.labels[key];
      chart.set(seriesOf(runs, key));
      const last = el("details", {}, el("summary", { textContent: "Numbers at the end" }));
      last.addEventListener("toggle", () => last.open && last.children.length < 2 && last.append(table(["method", "seed", "status", "last value"], runs.filter((r) => r.curves[key]).map((r) => [r.method, String(r.seed), badge(r.status), r.curves[key].y.at(-1)]))));
      return el("section", { class: "panel" }, el("h3", { textContent: name }), chart.box, last);
    }));
    const silent = chosen.filter((t) => !wanted.includes(t)).map((t) => taskName(...t));
    note.textContent = !chosen.length ? "Every noise is switched off." : silent.length ? `Without values of this figure: ${silent.join("; ")}.` : "";
  };
  const measures = selectOf("Figure", [first, ...keys.filter((k) => k !== first)].map((k) => [k, data.labels[k]]), (k) => { key = k; redraw(); });
  const envs = unique(data.runs.map((r) => r.env));
  const noiseButtons = noises.map((n) => { const b = el("button", { type: "button", class: "toggle", "aria-pressed": "true", textContent: n === "none" ? "no noise" : n, on: { click: () => { on.has(n) ? on.delete(n) : on.add(n); b.setAttribute("aria-pressed", String(on.has(n))); redraw(); } } }); return b; });
  const single = el("input", { type: "checkbox", checked: true, on: { change: () => { showRuns = single.checked; redraw(); } } });
  root.append(el("h2", { textContent: "Curves" }), el("p", { class: "soft", textContent: "Thin: single runs. Thick: the mean over a method's finished runs, with a band from the least to the most. A cross ends a run that did not finish. Drag over a chart to zoom, double click to go back; with the keyboard, arrows read and + − 0 zoom." }),
    el("div", { class: "controls" }, measures, envs.length > 1 ? selectOf("Environment", [["", "all"], ...envs.map((e) => [e, e])], (e) => { env = e; redraw(); }) : null,
      noises.length > 1 ? el("span", { role: "group", "aria-label": "Noise", class: "controls" }, "Noise", noiseButtons) : null, el("label", {}, single, "single runs")),
    legend(data.methods, redraw), body, note);
  redraw();
}

function information(root) {
  const runs = data.runs.filter((r) => r.curves.i_upper);
  root.append(el("h2", { textContent: "Information plane" }));
  if (!runs.length) return root.append(el("p", { textContent: "No run has a bottleneck: only DB and its kin log I_upper, I_pred and I_nce." }));
  const shut = runs.filter((r) => r.neck?.collapsed);
  root.append(el("div", { class: `notice ${shut.length ? "bad" : "good"}` }, shut.length ? badge("alarm", "collapse alarm") : badge("finished", "no collapse"), " ",
    shut.length ? el("ul", {}, shut.map((r) => el("li", {}, el("b", { textContent: r.name }), `: I_upper ${number(r.neck.i_upper, 3)}, I_nce ${number(r.neck.over, 3)} above chance`))) : "at the end of every run z still holds information. ", el("span", { class: "soft", textContent: data.rule })));
  const all = tasksOf(runs);
  let task = all[0];
  const body = el("div", { class: "grid" });
  const redraw = () => {
    const own = runs.filter((r) => r.env === task[0] && r.noise === task[1]), plane = new LineChart({ label: "Information plane: what z keeps against what it tells of the next state", xLabel: "I_upper: nats that z keeps", yLabel: "I_nce above chance (nats)", height: 300, shape: "path" });
    plane.series = own.filter((r) => !hidden.has(r.method) && r.curves.i_nce && r.curves.i_nce_chance).map((r) => {
      const steps = r.curves.i_nce.x.filter((x) => valueAt(r.curves.i_upper, x) !== null && valueAt(r.curves.i_nce_chance, x) !== null);
      return { name: `${r.method}, seed ${r.seed}`, colour: methodColour(r.method), dash: r.status === "finished" ? methodDash(r.method) : [4, 4], end: r.status === "finished" ? "dot" : "cross", steps,
        x: steps.map((x) => valueAt(r.curves.i_upper, x)), y: steps.map((x) => valueAt(r.curves.i_nce, x) - valueAt(r.curves.i_nce_chance, x)) };
    });
    const time = (key, note, other) => {
      const chart = new LineChart({ label: `${data.labels[key]} along training`, xLabel: "agent steps", yLabel: data.labels[key], height: 220 });
      chart.series = seriesOf(own, key);
      if (other) { const chance = own.find((r) => r.curves[other] && !hidden.has(r.method)); if (chance) chart.series.push({ name: "blind guessing", colour: css("--soft"), dash: [2, 4], width: 1.5, ...chance.curves[other] }); }
      return el("section", { class: "panel" }, chart.box, el("div", { class: "soft", textContent: note }));
    };
    const has = (key) => own.some((r) => r.curves[key]);
    body.replaceChildren(el("section", { class: "panel" }, plane.box, el("div", { class: "soft", textContent: "One line a run, from its beginning to the dot. Right: z keeps more. Up: z tells more about what comes next. Near the origin it is shut." })),
      time("i_upper", "Near 0 the bottleneck is shut."), time("i_pred", "Log-likelihood of the encoded next state under the prediction from z."), time("i_nce", "At the dotted line nothing has been learned.", "i_nce_chance"),
      ...(has("rank_z") ? [time("rank_z", "1 means that all observations look alike in z.")] : []), ...(has("rank_state") ? [time("rank_state", "1 means that the encoder has collapsed.")] : []));
  };
  root.append(el("div", { class: "controls" }, all.length > 1 ? selectOf("Task", all.map((t, i) => [i, taskName(...t)]), (i) => { task = all[i]; redraw(); }) : el("b", { textContent: taskName(...task) })),
    legend(unique(runs.map((r) => r.method)).sort((a, b) => data.methods.indexOf(a) - data.methods.indexOf(b)), redraw), body);
  redraw();
}

function rooms(root) {
  root.append(el("h2", { textContent: "Rooms" }));
  const withMaps = data.rooms.filter((m) => m.steps.length), without = data.rooms.filter((m) => !m.steps.length).map((m) => data.runs[m.run]);
  const note = without.length ? el("p", { class: "soft", textContent: `Without snapshots (made by an older version, or not begun): ${without.map((r) => r.name).join(", ")}.` }) : null;
  if (!withMaps.length) return root.append(el("p", { textContent: "No run on Rooms has snapshots of its map. Runs take about fifty along the way; those of older versions took none." }), ...(note ? [note] : []));
  const all = tasksOf(withMaps.map((m) => data.runs[m.run]));
  let task = all[0], what = "visits", share = 1, timer = null;
  const seeds = unique(withMaps.map((m) => data.runs[m.run].seed)).sort();
  let seed = seeds[0];
  const body = el("div", { class: "grid" }), said = el("b");
  const slider = el("input", { type: "range", min: 0, max: 100, value: 100, "aria-label": "Share of the training done", on: { input: () => { share = slider.value / 100; update(); } } });
  let shown = [];
  const build = () => {
    const own = data.methods.map((method) => { const of = withMaps.filter((m) => { const r = data.runs[m.run]; return r.method === method && r.env === task[0] && r.noise === task[1]; }); return of.find((m) => data.runs[m.run].seed === seed) || of[0]; }).filter(Boolean);
    shown = own.map((map) => ({ map, run: data.runs[map.run], heat: new HeatMap(`Map of ${what} of ${data.runs[map.run].method}`), ends: el("div", { class: "scale-ends" }), title: el("h3"), scale: el("div", { class: "scale" }) }));
    for (const s of shown) s.scale.style.background = `linear-gradient(90deg, ${VIRIDIS.map((c) => `rgb(${c})`).join(",")})`;
    body.replaceChildren(...shown.map((s) => el("section", { class: "panel heat" }, s.title, s.heat.box, s.scale, s.ends)));
    update();
  };
  const update = () => {
    const frames = shown.map((s) => { const last = s.run.asked || s.map.steps.at(-1); return nearest(s.map.steps, Math.min(s.map.steps.at(-1), share * last)); });
    const most = Math.max(1, ...shown.flatMap((s, i) => s.map.visits[frames[i]]));
    let steps = 0;
    shown.forEach((s, i) => {
      const values = s.map[what][frames[i]], known = (values || []).filter((v) => v !== null);
      const low = what === "visits" ? 0 : Math.min(...known), high = what === "visits" ? most : Math.max(...known);
      steps = Math.max(steps, s.map.steps[frames[i]]);
      s.title.replaceChildren(`${s.run.method}, seed ${s.run.seed} `, ...(s.run.status === "finished" ? [] : [badge(s.run.status)]));
      s.heat.set({ floor: s.map.floor, marks: s.map.marks, values, low, high, log: what === "visits", text: what === "visits" ? "visits" : "bonus" });
      s.heat.canvas.setAttribute("aria-label", `${what} of ${s.run.method} by cell after ${number(s.map.steps[frames[i]])} steps` + (known.length ? `, from ${number(Math.min(...known))} to ${number(Math.max(...known))}` : ""));
      s.heat.canvas.dataset.steps = s.map.steps[frames[i]];
      s.ends.replaceChildren(...(values ? [el("span", { textContent: number(low, 3) }), el("span", { textContent: what === "visits" ? "visits (log scale, the same for all)" : "bonus (own scale)" }), el("span", { textContent: number(high, 3) })] : [el("span", { textContent: "this method pays no bonus" })]));
    });
    said.textContent = `after ${number(steps)} steps`;
    slider.setAttribute("aria-valuetext", said.textContent);
  };
  const kinds = ["visits", "bonus"].map((kind) => el("button", { type: "button", class: "choice", "aria-pressed": String(kind === what), textContent: kind === "visits" ? "Visits" : "Bonus", on: { click: () => { what = kind; kinds.forEach((b) => b.setAttribute("aria-pressed", String(b.textContent.toLowerCase() === kind))); update(); } } }));
  const play = el("button", { type: "button", textContent: "▶ Play", on: { click: () => {
    if (timer) { clearInterval(timer); timer = null; play.textContent = "▶ Play"; return; }
    if (share >= 1) share = 0;
    play.textContent = "⏸ Pause";
    timer = setInterval(() => { share = Math.min(1, share + 0.02); slider.value = 100 * share; update(); if (share >= 1 || root.hidden) play.click(); }, 120);
  } } });
  root.append(el("p", { class: "soft", textContent: "Where each agent has been since the beginning, and what its bonus pays in each cell (mean over fixed transitions, under the run's noise). Blank cells were never visited. S start, K key, L lock, T treasure." }),
    el("div", { class: "controls" }, all.length > 1 ? selectOf("Task", all.map((t, i) => [i, taskName(...t)]), (i) => { task = all[i]; build(); }) : el("b", { textContent: taskName(...task) }),
      seeds.length > 1 ? selectOf("Seed", seeds.map((s) => [s, s]), (s) => { seed = seeds.find((x) => String(x) === s); build(); }) : null, el("span", { role: "group", "aria-label": "What is shown" }, kinds), play, said),
    el("div", { class: "slider" }, slider), body, ...(note ? [note] : []));
  build();
}

function runsView(root) {
  const list = el("div"), search = el("input", { type: "search", placeholder: "part of a name, env, method …", "aria-label": "Filter the runs", on: { input: () => fill() } });
  let status = "";
  const fill = () => {
    const wanted = data.runs.filter((r) => (!status || r.status === status) && [r.name, r.env, r.noise, r.method].join(" ").toLowerCase().includes(search.value.toLowerCase()));
    list.replaceChildren(el("p", { class: "soft", textContent: `${wanted.length} of ${data.runs.length} runs` }), ...wanted.map(runDetails));
  };
  root.append(el("h2", { textContent: "Runs" }), el("p", { class: "soft", textContent: "How each run was made, and the command that makes it again: with the same version and on a CPU, bit for bit." }),
    el("div", { class: "controls" }, search, selectOf("Status", [["", "all"], ...unique(data.runs.map((r) => r.status)).map((s) => [s, s])], (s) => { status = s; fill(); })), list);
  fill();
}

function runDetails(r) {
  const details = el("details", { class: "run" }, el("summary", {}, el("b", { textContent: r.name }), badge(r.status), r.neck?.collapsed ? badge("alarm", "collapsed") : null, r.not_finite.length ? badge("alarm", "not finite") : null,
    el("span", { class: "soft", textContent: `${r.method} on ${taskName(r.env, r.noise)}, seed ${r.seed}, ${number(r.steps)} of ${number(r.asked)} steps` })));
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    const inside = el("div", { class: "inside" });
    if (r.reason) inside.append(el("p", {}, badge(r.status), ` ${r.reason}`));
    if (r.command) {
      const code = el("pre", { textContent: r.command });
      const copy = el("button", { type: "button", textContent: "Copy the command", on: { click: () => copyText(r.command, code, copy) } });
      inside.append(el("h3", { textContent: "Make it again" }), code, copy);
    } else inside.append(el("p", { textContent: "Its configuration cannot be read by this version, so there is no command." }));
    const pairs = (object) => Object.entries(object).map(([k, v]) => [k, v]);
    const facts = { ...(r.code ? { code: r.code } : {}), ...r.machine };
    inside.append(el("h3", { textContent: "Version and machine" }), Object.keys(facts).length ? table(["", ""], pairs(facts)) : el("p", { class: "soft", textContent: "not recorded" }),
      el("h3", { textContent: "Configuration" }), el("div", { class: "columns" }, table(["setting", "value"], pairs(r.config)), Object.keys(r.options).length ? table(["setting of the bonus", "value"], pairs(r.options)) : null));
    details.append(inside);
  });
  return details;
}

async function copyText(text, node, button) {
  let done = true;
  try { await navigator.clipboard.writeText(text); } catch {
    const range = document.createRange();
    range.selectNodeContents(node);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    done = document.execCommand("copy");
  }
  button.textContent = done ? "Copied" : "Selected: press Ctrl-C";
  announce(button.textContent);
  setTimeout(() => { button.textContent = "Copy the command"; }, 2000);
}
