/* Read the data, offer the views that have data, and switch between them. */
"use strict";

const data = { runs: [], rooms: [], measures: [], unlike: [], episodes: [], ...JSON.parse(document.getElementById("data").textContent) };
const pictures = JSON.parse(document.getElementById("pictures").textContent);

/** @type {[string, string, (root: HTMLElement) => void, () => unknown][]} */
const ALL_VIEWS = [
  ["overview", "Overview", overview, () => data.runs.length],
  ["curves", "Curves", curves, () => data.runs.length],
  [
    "episodes",
    "Episodes",
    (root) => {
      root.append(el("h2", { textContent: "Episode explorer" }));
      new Explorer(root);
    },
    () => data.episodes.length,
  ],
  ["information", "Information plane", information, () => data.runs.some((r) => r.curves.i_upper)],
  ["rooms", "Rooms", rooms, () => data.rooms.length],
  ["runs", "Runs", runsView, () => data.runs.length],
];
const VIEWS = ALL_VIEWS.filter(([, , , has]) => has());

function show() {
  const wanted = location.hash.slice(1),
    view = VIEWS.find(([id]) => id === wanted) || VIEWS[0];
  if (!view) return;
  const [id, , build] = view;
  /** @type {NodeListOf<HTMLElement>} */
  const sections = main.querySelectorAll(":scope > section");
  for (const section of sections) section.hidden = section.id !== "view-" + id;
  if (!document.getElementById("view-" + id)) {
    const section = el("section", { id: "view-" + id });
    main.append(section);
    build(section);
  }
  for (const link of nav.children)
    link.getAttribute("href") === "#" + id
      ? link.setAttribute("aria-current", "page")
      : link.removeAttribute("aria-current");
  redrawAll();
}

const THEMES = ["auto", "light", "dark"];

function setTheme(name) {
  const dark = name === "dark" || (name === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  themeButton.textContent = "Theme: " + name;
  themeButton.dataset.name = name;
  try {
    localStorage.setItem("ssedb-theme", name);
  } catch {
    /* a browser may forbid it for files */
  }
  repaint();
}

/* Charts look up colours when they are built, so a new theme rebuilds all views but the explorer, which redraws itself. */
function repaint() {
  for (const section of main.querySelectorAll(":scope > section")) if (section.id !== "view-episodes") section.remove();
  show();
}

const main = document.getElementById("main"),
  nav = document.getElementById("nav"),
  themeButton = document.getElementById("theme");
nav.append(...VIEWS.map(([id, text]) => el("a", { href: "#" + id, textContent: text })));
nav.hidden = VIEWS.length < 2;
document.getElementById("footer").textContent =
  `Made by ssedb ${data.version}${data.made ? " on " + data.made : ""}. Curves are thinned out; the least and the most of every interval are kept.`;
themeButton.addEventListener("click", () =>
  setTheme(THEMES[(THEMES.indexOf(themeButton.dataset.name) + 1) % THEMES.length]),
);
matchMedia("(prefers-color-scheme: dark)").addEventListener(
  "change",
  () => themeButton.dataset.name === "auto" && setTheme("auto"),
);
addEventListener("hashchange", show);
let remembered = "auto";
try {
  remembered = localStorage.getItem("ssedb-theme") || "auto";
} catch {
  /* as above */
}
setTheme(THEMES.includes(remembered) ? remembered : "auto");
document.documentElement.dataset.ready = String(Math.round(performance.now()));
