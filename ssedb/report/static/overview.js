/* Overview: runs, failures, and the methods' scores with intervals. */
"use strict";

function overview(root) {
  const count = (status) => data.runs.filter((r) => r.status === status).length;
  const several = (list, word) => card(list.length, list.length === 1 ? word : word + "s");
  const card = (value, text) => el("div", { class: "card" }, el("b", { textContent: value }), text);
  root.append(
    el("h2", { textContent: "Overview" }),
    el(
      "div",
      { class: "cards" },
      several(data.runs, "run"),
      several(unique(data.runs.map((r) => r.env)), "environment"),
      several(data.methods, "method"),
      card(
        number(
          data.runs.reduce((sum, r) => sum + r.steps, 0),
          3,
        ),
        "agent steps",
      ),
      ...["finished", "unfinished", "failed", "missing", "damaged"]
        .filter((s) => s === "finished" || count(s))
        .map((s) => card(count(s), badge(s))),
    ),
  );
  const trouble = data.runs.filter((r) => r.status !== "finished");
  if (trouble.length)
    root.append(
      el(
        "div",
        { class: "notice bad" },
        el("b", { textContent: `${trouble.length} of ${data.runs.length} runs did not finish. ` }),
        "They are left out of the statistics, and drawn with a cross at their end.",
        el(
          "ul",
          {},
          trouble
            .slice(0, 40)
            .map((r) =>
              el("li", {}, badge(r.status), " ", el("b", { textContent: r.name }), r.reason ? `: ${r.reason}` : ""),
            ),
        ),
        trouble.length > 40 ? `and ${trouble.length - 40} more` : "",
      ),
    );
  const holes = data.runs.filter((r) => r.not_finite.length);
  if (holes.length)
    root.append(
      el(
        "div",
        { class: "notice bad" },
        el("b", { textContent: "Values that are not finite: " }),
        "the curves have holes there.",
        el(
          "ul",
          {},
          holes.map((r) => el("li", { textContent: `${r.name}: ${r.not_finite.join(", ")}` })),
        ),
      ),
    );
  const shut = data.runs.filter((r) => r.neck?.state === "shut");
  if (shut.length)
    root.append(
      el(
        "div",
        { class: "notice bad" },
        badge("alarm", "collapse alarm"),
        ` in ${shut.map((r) => r.name).join(", ")}: see `,
        el("a", { href: "#information", textContent: "the information plane" }),
        ".",
      ),
    );
  const alarmed = data.runs.filter((r) => r.alarms.length);
  if (alarmed.length)
    root.append(
      el(
        "div",
        { class: "notice bad" },
        badge("alarm", "policy alarm"),
        " the policy does not follow its bonus in",
        el(
          "ul",
          {},
          alarmed.flatMap((r) =>
            r.alarms.map((a) => el("li", {}, el("b", { textContent: r.name }), `: ${a.text}`)),
          ),
        ),
      ),
    );
  for (const note of data.unlike) root.append(el("div", { class: "notice", textContent: note }));
  if (!data.measures.length)
    return root.append(
      el("p", {
        textContent:
          "No run has finished with a score yet, so there is nothing to rank. The curves show how far the runs are.",
      }),
    );
  const body = el("div");
  root.append(
    el(
      "div",
      { class: "controls" },
      selectOf(
        "Measure",
        data.measures.map((m, i) => [i, m.label]),
        (i) => measure(body, data.measures[i]),
      ),
    ),
    body,
  );
  measure(body, data.measures[0]);
}

function measure(body, m) {
  const compared = el("div");
  const parts = [m, ...m.by_noise];
  const controls = selectOf(
    "Tasks",
    parts.map((part, i) => [i, part.name ?? "all"]),
    (i) => compare(compared, m, parts[i]),
  );
  body.replaceChildren(m.by_noise.length ? el("div", { class: "controls" }, controls) : "", compared);
  compare(compared, m, m);
}

function compare(body, m, part) {
  const better = m.better === "high" ? "higher is better" : "lower is better";
  const under = part.name ? `, ${part.name}` : "";
  const ranked = part.ranking.filter((r) => r.iqm !== undefined && r.iqm !== null);
  const tasks = ranked.length ? ranked[0].tasks : 0;
  const parts = [];
  if (ranked.length) {
    const alone = ranked.some((r) => r.iqm_low === null || r.iqm_low === undefined);
    parts.push(
      el(
        "section",
        { class: "panel" },
        el("h3", { textContent: `Ranking: ${m.label}${under}` }),
        el("p", {
          class: "soft",
          textContent:
            `Interquartile mean over ${tasks} task${tasks === 1 ? "" : "s"} (an environment under a noise) that every method has, 95% bootstrap interval; ${better}.` +
            (alone ? " A hollow mark has one run per task and so no interval." : ""),
        }),
        part.caution ? el("div", { class: "notice", textContent: part.caution }) : null,
        m.about ? el("p", { class: "soft", textContent: `Reference scores: ${m.about}.` }) : null,
        m.mixed
          ? el("div", {
              class: "notice",
              textContent: "Each environment counts this in its own way, so a mean over several says little.",
            })
          : null,
        intervalChart(
          ranked.map((r) => ({ method: r.method, value: r.iqm, low: r.iqm_low, high: r.iqm_high, text: r.shown[0] })),
          `Ranking by ${m.label}${under}: ${ranked.map((r) => `${r.method} ${r.shown[0]}`).join(", ")}`,
          m.share,
        ),
        table(
          ["method", "IQM", "95% interval", "mean", "median", "runs"],
          ranked.map((r) => [methodCell(r.method), ...r.shown.map((text) => new Shown(text)), r.runs]),
        ),
      ),
    );
  } else
    parts.push(
      el(
        "section",
        { class: "panel" },
        el("h3", { textContent: "Ranking" }),
        el("p", { textContent: "No task was finished by every method, so they cannot be ranked together; see each task." }),
      ),
    );
  const names = unique(part.improvements.map((r) => r.first));
  if (names.length > 1 && names.length <= 14)
    parts.push(
      el(
        "section",
        { class: names.length > 3 ? "panel whole" : "panel" },
        el("h3", { textContent: `Who beats whom${under}` }),
        el("p", {
          class: "soft",
          textContent:
            "How probably a run of the row beats one of the column on the same task, with its 95% interval. " + part.certain,
        }),
        table(
          ["", ...names.map(methodCell)],
          names.map((a) => [
            methodCell(a),
            ...names.map((b) => {
              const r = part.improvements.find((x) => x.first === a && x.second === b);
              return r ? new Shown(r.shown) : "";
            }),
          ]),
        ),
      ),
    );
  parts.push(
    el(
      "section",
      { class: "panel whole" },
      el("h3", { textContent: "Task by task" }),
      table(
        ["environment", "noise", "method", "mean", "95% interval", "runs", "left out"],
        m.conditions.map((r) => [
          r.env,
          noiseName(r.noise),
          methodCell(r.method),
          ...r.shown.map((text) => new Shown(text)),
          r.runs,
          r.left_out ? badge("unfinished", `${r.left_out} left out`) : "0",
        ]),
      ),
    ),
  );
  body.replaceChildren(el("div", { class: "grid wide" }, parts));
}
