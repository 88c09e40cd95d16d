/* The episode explorer: frame, bonus curve, spikes and maps show the same step; moving any of them moves all. */
"use strict";

const SPEEDS = [0.25, 0.5, 1, 2, 4];
const FRAMES_PER_SECOND = 15;

class Explorer {
  constructor(root) {
    this.root = root;
    this.step = 0;
    this.clean = false;
    this.first = 0;
    this.second = -1;
    this.episodeSelect = this.firstSelect = this.secondSelect = this.speedSelect = null;
    this.build();
    this.load(0);
  }

  build() {
    const choose = (label, listener) => {
      const select = el("select", { "aria-label": label, on: { change: () => listener(Number(select.value)) } });
      return [select, el("label", {}, label, select)];
    };
    let episodeLabel, firstLabel, secondLabel, speedLabel;
    [this.episodeSelect, episodeLabel] = choose("Episode", (i) => this.load(i));
    [this.firstSelect, firstLabel] = choose("Bonus", (i) => {
      this.first = i;
      this.redraw();
    });
    [this.secondSelect, secondLabel] = choose("compared with", (i) => {
      this.second = i;
      this.redraw();
    });
    [this.speedSelect, speedLabel] = choose("Speed", () => {});
    SPEEDS.forEach((speed) =>
      this.speedSelect.append(el("option", { value: speed, textContent: `${speed}×`, selected: speed === 1 })),
    );
    data.episodes.forEach((e, i) =>
      this.episodeSelect.append(
        el("option", {
          value: i,
          textContent: `${taskName(e.env, e.noise)}: agent ${shortName(e.agent)}, ${number(e.trained)} steps`,
          title: e.agent,
        }),
      ),
    );
    this.stage = el("canvas", { role: "img" });
    this.slider = el("input", {
      type: "range",
      min: 0,
      step: 1,
      "aria-label": "Step of the episode",
      on: { input: () => this.go(Number(this.slider.value)) },
    });
    const button = (text, title, listener, extra = {}) =>
      el("button", { type: "button", textContent: text, title, "aria-label": title, on: { click: listener }, ...extra });
    this.playButton = button("▶ Play", "Play or pause (space)", () => this.toggle(), { class: "main" });
    this.cleanButton = button("Without noise", "Show the frame without the noise (C)", () => this.setClean(!this.clean), {
      class: "choice",
      "aria-pressed": "false",
    });
    this.readout = el("p", { class: "readout" });
    this.curve = new LineChart({
      label: "Bonus along the episode; click or drag to move",
      xLabel: "step of the episode",
      height: 230,
      scrub: (x) => this.go(Math.round(x)),
    });
    this.maps = el("div", { class: "maps" });
    this.spikes = el("div", { class: "spikes", role: "group", "aria-label": "Spikes of the bonus" });
    this.spikeNote = el("p", { class: "soft" });
    this.about = el("p", { class: "soft" });
    this.root.append(
      el("div", { class: "controls" }, episodeLabel, firstLabel, secondLabel),
      this.about,
      el(
        "div",
        { class: "explorer" },
        el(
          "div",
          { class: "panel stage" },
          this.stage,
          this.readout,
          el(
            "div",
            { class: "player" },
            this.slider,
            button("|◀", "First step (Home)", () => this.go(0)),
            button("◀", "One step back (left arrow)", () => this.go(this.step - 1)),
            this.playButton,
            button("▶", "One step on (right arrow)", () => this.go(this.step + 1)),
            button("▶|", "Last step (End)", () => this.go(Infinity)),
            speedLabel,
            this.cleanButton,
          ),
        ),
        el(
          "div",
          {},
          el("div", { class: "panel" }, this.curve.box, el("h3", { textContent: "Spikes" }), this.spikeNote, this.spikes),
          this.maps,
        ),
      ),
      el(
        "p",
        { class: "soft" },
        el("kbd", { textContent: "space" }),
        " plays and pauses, ",
        el("kbd", { textContent: "←" }),
        " ",
        el("kbd", { textContent: "→" }),
        " step (with ",
        el("kbd", { textContent: "shift" }),
        " by ten), ",
        el("kbd", { textContent: "N" }),
        " ",
        el("kbd", { textContent: "P" }),
        " next and previous spike, ",
        el("kbd", { textContent: "C" }),
        " without noise.",
      ),
    );
    document.addEventListener("keydown", (e) => this.key(e));
  }

  load(index) {
    this.pause();
    const episode = (this.episode = data.episodes[index]);
    this.episodeSelect.value = index;
    this.first = 0;
    this.second = -1;
    const options = episode.traces.map((r, i) => el("option", { value: i, textContent: shortName(r.name), title: r.name }));
    this.firstSelect.replaceChildren(...options);
    this.secondSelect.replaceChildren(
      el("option", { value: -1, textContent: "nothing" }),
      ...options.map((o) => o.cloneNode(true)),
    );
    this.slider.max = episode.length - 1;
    this.sheets = {};
    for (const kind of ["seen", "clean"])
      if (episode.frames[kind]) {
        const image = new Image();
        image.src = pictures[episode.frames[kind]] || episode.frames[kind];
        image.addEventListener("load", () => this.redrawFrames());
        this.sheets[kind] = image;
      }
    this.cleanButton.disabled = !episode.frames.clean;
    this.cleanButton.textContent = episode.noise === "none" ? "In colour" : "Without noise";
    if (!episode.frames.clean) this.clean = false;
    const kept =
      episode.frames.steps.length < episode.length
        ? ` Every ${Math.round(episode.length / episode.frames.steps.length)}th frame is kept, and those of the spikes.`
        : "";
    this.about.textContent = `${episode.length} steps, score ${number(episode.score)}, seed ${episode.seed}. The bonus of a step is for leaving the observation shown.${kept}`;
    this.setClean(this.clean);
    this.step = 0;
    this.redraw();
  }

  traces() {
    return [this.first, this.second]
      .filter((i, k) => i >= 0 && (k === 0 || i !== this.first))
      .map((i) => this.episode.traces[i]);
  }

  redraw() {
    const chosen = this.traces(),
      scaled = chosen.length > 1,
      length = this.episode.length;
    const steps = Array.from({ length }, (_, i) => i);
    this.curve.yLabel = scaled ? "bonus, each from its least (0) to its most (1)" : "bonus";
    const series = chosen.map((r) => {
      const low = Math.min(...r.bonus),
        high = Math.max(...r.bonus);
      const y = scaled ? r.bonus.map((v) => (high > low ? (v - low) / (high - low) : 0.5)) : r.bonus;
      return {
        name: r.name,
        colour: methodColour(r.name),
        dash: r === chosen[1] && chosen[0].name === r.name ? [5, 3] : methodDash(r.name),
        width: 1.3,
        x: steps,
        y,
      };
    });
    const marks = chosen[0].spikes.map((s, i) => ({
      x: s.step,
      y: series[0].y[s.step],
      text: String(i + 1),
      hollow: !s.clear,
    }));
    this.curve.setView(null);
    this.curve.set(series, marks);
    this.drawSpikes(chosen[0]);
    this.drawMaps(chosen);
    this.go(this.step);
  }

  drawSpikes(trace) {
    const clear = trace.spikes.filter((s) => s.clear).length;
    this.spikeNote.textContent = trace.spikes.length
      ? `${trace.spikes.length} of ${trace.name}, ${clear} clear; a hollow mark or dashed frame may be noise.`
      : "Nothing stands out from this curve.";
    this.spikes.replaceChildren(
      ...trace.spikes.map((s, i) => {
        const thumb = el("canvas", { width: 84, height: 84, role: "img", "aria-label": `Frame at spike ${i + 1}` });
        const b = el(
          "button",
          {
            type: "button",
            class: s.clear ? "" : "faint",
            title: `${s.height} robust standard deviations above the running median`,
            on: { click: () => this.go(s.step) },
          },
          thumb,
          `${i + 1}: step ${s.step}`,
        );
        b.dataset.step = s.step;
        this.paint(thumb, s.step);
        return b;
      }),
    );
  }

  drawMaps(chosen) {
    const { maps } = this.episode,
      raw = maps.findIndex((m) => m.title === "raw pixels");
    const wanted = [...new Set([...chosen.map((r) => r.map), raw])].filter((i) => i !== null && i !== undefined && i >= 0);
    this.points = wanted.map((i) => {
      const map = new PointMap(
        `Map of the episode in ${maps[i].title}; click a point to go there`,
        (step) => this.go(step),
        (step) => this.preview(step),
      );
      map.box.classList.add("points");
      map.set(maps[i]);
      return map;
    });
    this.maps.replaceChildren(
      ...this.points.map((map, k) =>
        el(
          "div",
          { class: "panel" },
          el("h3", { textContent: maps[wanted[k]].title + " (t-SNE)" }),
          map.box,
          el("div", {
            class: "soft",
            textContent: `distance of consecutive steps / of random pairs: ${number(maps[wanted[k]].ratio, 3)}`,
          }),
        ),
      ),
    );
    for (const r of chosen)
      if (r.map === null)
        this.maps.prepend(el("div", { class: "panel soft", textContent: `${r.name} has no representation to draw.` }));
  }

  go(step) {
    this.step = Math.max(0, Math.min(this.episode.length - 1, step));
    this.slider.value = this.step;
    const bonus = this.traces()
      .map((r) => `${r.name} ${number(r.bonus[this.step])}`)
      .join(", ");
    const reward = this.episode.rewards.find(([t]) => t === this.step);
    this.slider.setAttribute("aria-valuetext", `step ${this.step}, bonus ${bonus}`);
    this.readout.replaceChildren(
      el("b", { textContent: `Step ${this.step}` }),
      ` of ${this.episode.length - 1}`,
      el("br"),
      `bonus: ${bonus}`,
      reward ? `, reward ${number(reward[1])}` : "",
    );
    this.curve.cursor = this.step;
    this.curve.draw();
    for (const map of this.points) map.show(this.step);
    for (const b of this.spikes.children) {
      const here = Number(b.dataset.step) === this.step;
      b.setAttribute("aria-current", String(here));
      if (here) this.spikes.scrollLeft = b.offsetLeft - this.spikes.offsetLeft - this.spikes.clientWidth / 3;
    }
    this.drawFrame();
  }

  setClean(clean) {
    this.clean = clean && Boolean(this.episode.frames.clean);
    this.cleanButton.setAttribute("aria-pressed", String(this.clean));
    this.drawFrame();
  }

  drawFrame() {
    const shown = this.paint(this.stage, this.step, this.clean);
    this.stage.setAttribute(
      "aria-label",
      `${this.clean ? "Frame without the noise" : "Frame as the agent saw it"} at step ${shown}`,
    );
  }

  redrawFrames() {
    this.drawFrame();
    for (const b of this.spikes.children) this.paint(b.firstChild, Number(b.dataset.step));
  }

  /* Draw the stored frame nearest to a step; return its step. */
  paint(canvas, step, clean = false) {
    const { steps, columns, size } = this.episode.frames,
      sheet = this.sheets[clean ? "clean" : "seen"];
    const i = nearest(steps, step),
      [height, width] = size;
    canvas.width = width;
    canvas.height = height;
    if (sheet?.complete && sheet.naturalWidth) {
      const g = canvas.getContext("2d");
      g.imageSmoothingEnabled = false;
      g.drawImage(sheet, (i % columns) * width, Math.floor(i / columns) * height, width, height, 0, 0, width, height);
    }
    return steps[i];
  }

  preview(step) {
    const thumb = el("canvas", { class: "thumb" });
    thumb.style.width = thumb.style.height = "126px";
    this.paint(thumb, step, this.clean);
    return el("div", {}, thumb, el("div", { textContent: `step ${step}` }));
  }

  toggle() {
    this.timer ? this.pause() : this.play();
  }

  play() {
    if (this.step >= this.episode.length - 1) this.go(0);
    let last = performance.now(),
      due = 0;
    const tick = (now) => {
      due += ((now - last) / 1000) * FRAMES_PER_SECOND * Number(this.speedSelect.value);
      last = now;
      if (due >= 1) {
        this.go(this.step + Math.floor(due));
        due %= 1;
      }
      if (this.step >= this.episode.length - 1 || !this.root.isConnected || this.root.hidden) return this.pause();
      this.timer = requestAnimationFrame(tick);
    };
    this.timer = requestAnimationFrame(tick);
    this.playButton.textContent = "⏸ Pause";
  }

  pause() {
    cancelAnimationFrame(this.timer);
    this.timer = null;
    this.playButton.textContent = "▶ Play";
  }

  key(event) {
    const inside = event.target;
    if (this.root.hidden || event.ctrlKey || event.altKey || event.metaKey) return;
    if (inside instanceof HTMLSelectElement || inside === this.slider) return;
    if (inside instanceof HTMLButtonElement && (event.key === " " || event.key === "Enter")) return;
    const spikes = this.traces()[0].spikes.map((s) => s.step),
      far = event.shiftKey ? 10 : 1;
    const actions = {
      " ": () => this.toggle(),
      ArrowLeft: () => this.go(this.step - far),
      ArrowRight: () => this.go(this.step + far),
      Home: () => this.go(0),
      End: () => this.go(Infinity),
      c: () => this.setClean(!this.clean),
      n: () => this.go(spikes.find((s) => s > this.step) ?? this.step),
      p: () => this.go(spikes.findLast((s) => s < this.step) ?? this.step),
    };
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}
