"""Draw the figures about exploration in README.md and docs/ from a packed study and a log of runs.

python benchmarks/figures_exploration.py    # exploration, bonus-blind-fade, bonus-followed (.png)
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from study_tables import read_study

from ssedb.compare.curves import learning_curves
from ssedb.compare.style import COLOURS, STYLE, method_styles

ROOT = Path(__file__).parent.parent
LOG = ROOT / "benchmarks" / "log"
EVERY = 0.25
"""Million steps between two values of a curve."""
Run = dict[str, Any]


def with_settings(bonus: str, **settings: Any) -> Callable[[Run], bool]:
    """Tell whether a run has that bonus and these settings (None: not set)."""

    def fits(run: Run) -> bool:
        own = run["settings"]
        return own["bonus"] == bonus and all(own.get(k) == v for k, v in settings.items())

    return fits


METHODS = {
    "count": "counts of true states",
    "db-ensemble": "db-ensemble",
    "icm": "ICM",
    "rnd": "RND",
    "disagreement": "Disagreement",
    "lbs": "LBS",
    "db": "DB's KL",
    "none": "acting at random",
}
"""Name of each bonus."""
SCALES = {
    "whole run (the paper's)": (dict(reward_scale="whole-run"), COLOURS[1]),
    "recent rollouts": (
        dict(reward_scale=None, reward_window=None, reward_centred=False),
        COLOURS[0],
    ),
}


def read_leads() -> list[Run]:
    """Read a log of runs, one a line."""
    lines = (LOG / "2026-11-16-exploration.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def curve(axes: Any, run: Run, **style: Any) -> None:
    seen = run["states_share"]
    axes.plot([EVERY * i for i in range(len(seen))], seen, **style)


def once(label: str, number: int) -> str | None:
    return label if number == 0 else None


def explored() -> Any:
    """Draw the states that agents see along training, without noise and under boxes."""
    shown = ("db-ensemble", "count", "icm", "rnd", "none")
    noises = {"none": "without noise", "random-box": "under random boxes"}
    runs = [run for run in read_study() if run.method in shown and run.noise in noises]
    figure = learning_curves(runs, "states_share")
    assert figure is not None
    for axes, title in zip(figure.axes, noises.values(), strict=True):
        axes.set_title(title)
    return figure


def blind_and_fading() -> Any:
    """Draw noise and fading of each bonus at the end of its run, and the states its agent sees."""
    runs = [run for run in read_study() if run.noise == "random-box"]
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    styles = method_styles([*METHODS])
    for bonus, name in METHODS.items():
        colour = styles[bonus]["color"]
        own = [run for run in runs if run.config["bonus"] == bonus]
        for number, run in enumerate(own):
            steps, seen = run.curve("states_share")
            label = once(f"{name} ({len(own)})", number)
            right.plot(steps / 1e6, seen, color=colour, label=label)
            if bonus != "none":
                point = run.value("bonus_noise_share"), run.value("count_correlation")
                left.scatter(*point, color=colour, s=28, zorder=3)
    left.axvspan(-0.03, 0.15, ymin=(0.6 + 0.15) / 1.25, color=COLOURS[2], alpha=0.12, lw=0)
    left.set(xlim=(-0.03, 1), ylim=(-0.15, 1.1))
    left.set(xlabel="share of noise in the bonus", ylabel="rank correlation with counts")
    left.set_title("Blind (left) and fading (top), at the end of each run")
    right.set(xlabel="million steps", ylabel="share of states seen", ylim=(0, 1.1))
    right.set_title("Medium Rooms under random boxes (runs)")
    right.legend(frameon=False, loc="upper left", ncols=2)
    return figure


def followed() -> Any:
    """Draw two bonuses under two reward scales."""
    leads = read_leads()
    figure, panels = pyplot.subplots(1, 2, figsize=(7, 2.8), sharey=True, layout="constrained")
    tasks = {
        "counts of true states, boxes": ("count", None),
        "RND, clean frames": ("rnd", "none"),
    }
    for axes, (title, (bonus, noise)) in zip(panels, tasks.items(), strict=True):
        for name, (settings, colour) in SCALES.items():
            fits = with_settings(bonus, noise=noise, **settings)
            own = [run for run in leads if fits(run)]
            for number, run in enumerate(own):
                curve(axes, run, color=colour, label=once(f"{name} ({len(own)} runs)", number))
        axes.set(title=title, xlabel="million steps", ylim=(0, 0.8), xlim=(0, 3))
        axes.legend(frameon=False, loc="lower right")
    panels[0].set_ylabel("share of states seen")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder for the figures")
    args = parser.parse_args()
    with pyplot.rc_context(STYLE):
        for name, draw in {
            "exploration": explored,
            "bonus-blind-fade": blind_and_fading,
            "bonus-followed": followed,
        }.items():
            path = args.out / f"{name}.png"
            draw().savefig(path, dpi=160 if name == "exploration" else 110)
            print(path)


if __name__ == "__main__":
    main()
