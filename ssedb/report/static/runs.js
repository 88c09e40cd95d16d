/* Provenance of each run, and the command that repeats it. */
"use strict";

function runsView(root) {
  const list = el("div"),
    search = el("input", {
      type: "search",
      placeholder: "part of a name, env, method …",
      "aria-label": "Filter the runs",
      on: { input: () => fill() },
    });
  let status = "";
  const fill = () => {
    const wanted = data.runs.filter(
      (r) =>
        (!status || r.status === status) &&
        [r.name, r.env, r.noise, r.method].join(" ").toLowerCase().includes(search.value.toLowerCase()),
    );
    list.replaceChildren(
      el("p", { class: "soft", textContent: `${wanted.length} of ${data.runs.length} runs` }),
      ...wanted.map(runDetails),
    );
  };
  root.append(
    el("h2", { textContent: "Runs" }),
    el("p", {
      class: "soft",
      textContent:
        "How each run was made, and the command that makes it again (into another --out): with the same version and on the same CPU, bit for bit.",
    }),
    el(
      "div",
      { class: "controls" },
      search,
      selectOf("Status", [["", "all"], ...unique(data.runs.map((r) => r.status)).map((s) => [s, s])], (s) => {
        status = s;
        fill();
      }),
    ),
    list,
  );
  fill();
}

function runDetails(r) {
  const details = el(
    "details",
    { class: "run" },
    el(
      "summary",
      {},
      el("b", { textContent: r.name }),
      badge(r.status),
      r.neck?.state === "shut" ? badge("alarm", "collapsed") : null,
      r.neck?.state === "not opened yet" ? badge("unfinished", "not opened yet") : null,
      r.alarms.some((a) => a.stands) ? badge("alarm", "policy alarm") : null,
      r.not_finite.length ? badge("alarm", "not finite") : null,
      el("span", {
        class: "soft",
        textContent: `${r.method} on ${taskName(r.env, r.noise)}, seed ${r.seed}, ${number(r.steps)} steps (asked for ${number(r.asked)})`,
      }),
    ),
  );
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    const inside = el("div", { class: "inside" });
    if (r.reason) inside.append(el("p", {}, badge(r.status), ` ${r.reason}`));
    if (r.command) {
      const code = el("pre", { textContent: r.command });
      const copy = el("button", {
        type: "button",
        textContent: "Copy the command",
        on: { click: () => copyText(r.command, code, copy) },
      });
      inside.append(el("h3", { textContent: "Make it again" }), code, copy);
    } else
      inside.append(el("p", { textContent: "Its configuration cannot be read by this version, so there is no command." }));
    const pairs = (object) => Object.entries(object).map(([k, v]) => [k, v]);
    const facts = { ...(r.code ? { code: r.code } : {}), ...r.machine };
    inside.append(
      el("h3", { textContent: "Version and machine" }),
      Object.keys(facts).length ? table(["", ""], pairs(facts)) : el("p", { class: "soft", textContent: "not recorded" }),
      el("h3", { textContent: "Configuration" }),
      el(
        "div",
        { class: "columns" },
        table(["setting", "value"], pairs(r.config)),
        Object.keys(r.options).length ? table(["setting of the bonus", "value"], pairs(r.options)) : null,
      ),
    );
    details.append(inside);
  });
  return details;
}

async function copyText(text, node, button) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const range = document.createRange();
    range.selectNodeContents(node);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    done = document.execCommand("copy");
  }
  button.textContent = done ? "Copied" : "Selected: press Ctrl-C";
  announce(button.textContent);
  setTimeout(() => {
    button.textContent = "Copy the command";
  }, 2000);
}
