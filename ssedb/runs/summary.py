"""What the commands print when they are done."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from ssedb import terminal
from ssedb.analysis.probe import Probe
from ssedb.config import TrainConfig
from ssedb.runs.alarms import Alarm
from ssedb.runs.evaluation import Evaluation
from ssedb.runs.folder import resume_command
from ssedb.runs.loop import TrainResult

if TYPE_CHECKING:
    from ssedb.analysis.tsne import Map


def print_run(result: TrainResult, config: TrainConfig) -> None:
    """What a run did, and where it is."""
    last, console = result.summary["last"], terminal.console()
    table = Table(
        title=f"{config.bonus} on {config.env}, noise {config.noise}",
        show_header=False,
        title_justify="left",
    )
    table.add_row(
        "agent steps",
        f"{result.steps:,} (asked for {config.steps:,}, in rollouts of {config.rollout_size:,})",
    )
    if last:
        table.add_row("steps per second", f"{last['sps']:,.0f} (last update)")
    score = result.summary["score"]
    table.add_row("episodes ended", f"{result.summary['episodes']:,}")
    table.add_row(
        "score, mean of the last 100",
        "no episode has ended yet" if score is None else f"{score:.2f}",
    )
    table.add_row("score, best", "-" if score is None else f"{result.summary['score_best']:.2f}")
    names = {
        "bonus_raw": "bonus, mean before normalisation",
        "i_upper": "I_upper (nats in z)",
        "i_pred": "I_pred (log-likelihood)",
        "i_nce": "I_nce",
        "i_nce_chance": "I_nce of blind guessing",
        "rank_z": "rank of z, the representation",
        "rank_state": "rank of the encoded states",
    }
    for name, label in names.items():
        if name in last:
            table.add_row(label, f"{last[name]:.3f}")
    terminal.print_table(console, table)
    for alarm in result.summary.get("alarms", []):
        print(terminal.wrapped(f"ALARM: {Alarm(**alarm).text(vars(config))}"))
    console.print(f"run folder   {result.out}", soft_wrap=True)
    console.print(f"metrics      {result.out / 'metrics.jsonl'}", soft_wrap=True)
    console.print(
        f"curves       tensorboard --logdir {shlex.quote(str(result.out / 'tb'))}", soft_wrap=True
    )
    if last:
        console.print(
            f"watch it     ssedb eval {shlex.quote(str(result.out))} --episodes 5 --video",
            soft_wrap=True,
        )
    if not result.finished:
        console.print(f"stopped early; go on with: {resume_command(result.out)}", soft_wrap=True)


def print_evaluation(result: Evaluation) -> None:
    """Scores of the episodes played."""
    console = terminal.console()
    scores = np.array(result.scores)
    text = (
        f"{result.env}, noise {result.noise}, agent of step {result.steps:,}: score {scores.mean():.2f} "
        f"(std {scores.std():.2f}, from {scores.min():.0f} to {scores.max():.0f}) over {len(scores)} episodes "
        f"of {np.mean(result.lengths):.0f} steps on average"
    )
    print(terminal.wrapped(text))
    if result.video is not None:
        console.print(f"video  {result.video}", soft_wrap=True)


def print_probe(result: Probe, bonus: str, picture: Path) -> None:
    """The probe's measures, one a line."""
    table = Table(
        "measure", "value", "reads", title=f"{bonus} under {result.noise}", title_justify="left"
    )
    rows = [
        ("share of noise in the bonus", result.bonus_noise_share, "0 blind to it, 1 nothing else"),
        ("correlation with 1/sqrt(N(s,a)+1)", result.count_correlation, "1 pays like a count"),
        (
            "share of noise in the features",
            result.feature_noise_share,
            "0 blind to it, 1 nothing else",
        ),
        (
            "room named from the features",
            result.room_accuracy,
            "held-out accuracy of a linear probe",
        ),
        (
            "place explained by the features",
            result.place_explained,
            "held-out R2 of row and column",
        ),
        (
            "noise explained by the features",
            result.noise_explained,
            "held-out R2 of the noise in 4x4 fields",
        ),
        (
            "bonus left after 50 repetitions, clean",
            result.fall_clean[-1] / result.fall_clean[0],
            "1 does not fade",
        ),
        ("the same under noise", result.fall_noisy[-1] / result.fall_noisy[0], "1 does not fade"),
    ]
    for name, value, reads in rows:
        table.add_row(name, "-" if value is None else f"{value:.3f}", reads)
    console = terminal.console()
    terminal.print_table(console, table)
    console.print(f"picture  {picture}\nnumbers  {picture.with_suffix('.json')}", soft_wrap=True)


def print_checks(name: str, device: str) -> bool:
    """Print every check of a bonus or a noise as it is done; return whether nothing failed.

    For a bonus, also print what each noise does to it.
    """
    from ssedb.noises import is_noise
    from ssedb.testing import conformance, noises
    from ssedb.testing.conformance import Subject, run_check, sensitivity

    console, failed = terminal.console(), 0
    subject = noises.NoiseSubject(name, device) if is_noise(name) else Subject(name, device)
    checks = (conformance if isinstance(subject, Subject) else noises).CHECKS
    for check in checks:
        result = run_check(check, subject)
        failed += result.outcome == "fail"
        colour = {"pass": "green", "fail": "bold red", "skip": "dim"}[result.outcome]
        line = Text(
            terminal.wrapped(result.why, f"{result.outcome}  {result.name:<38} ", indent=" " * 6)
        )
        line.stylize(colour, 0, len(result.outcome))
        console.print(line, soft_wrap=True)
    if not failed and isinstance(subject, Subject):
        console.print(
            "\nshare of noise in the bonus, hardly trained (0 is blind to it, 1 sees nothing else):"
        )
        for noise, share in sensitivity(subject).items():
            console.print(
                f"  {noise:<12} " + ("the bonus does not vary" if share is None else f"{share:.2f}")
            )
        console.print("`ssedb analyze probe` measures a trained run\n")
    console.print(
        f"{name}: "
        + (f"{failed} of {len(checks)} checks failed" if failed else "keeps its contract")
    )
    return not failed


def print_spikes(found: dict[str, Any]) -> None:
    """The spikes of an episode, strongest first, and where the pictures are."""
    title = f"{found['bonus']}: spikes of an episode of {found['length']} steps (score {found['score']:g})"
    table = Table(
        "number", "step", "bonus", "height (robust std)", "", title=title, title_justify="left"
    )
    numbered = sorted(enumerate(found["spikes"], start=1), key=lambda pair: -pair[1]["height"])
    for number, spike in numbered:
        clear = "clear" if spike["clear"] else "may be noise"
        table.add_row(
            str(number),
            str(spike["step"]),
            f"{spike['bonus']:.4g}",
            f"{spike['height']:.1f}",
            clear,
        )
    console, folder = terminal.console(), Path(found["run"]) / "spikes"
    terminal.print_table(console, table)
    if not numbered:
        console.print("nothing rises above the noise of the curve")
    console.print(
        f"curve    {folder / 'curve.png'}\nframes   {folder / 'frames.png'}", soft_wrap=True
    )
    console.print(
        f"clips    {folder / 'clip-*.mp4'}\nepisode  {folder / 'episode.mp4'}", soft_wrap=True
    )


def print_maps(maps: list[Map], folder: Path) -> None:
    """How near consecutive steps lie in each representation."""
    table = Table("representation", "distance of consecutive steps / of random pairs")
    for chart in maps:
        table.add_row(chart.title, "-" if chart.ratio is None else f"{chart.ratio:.3f}")
    console = terminal.console()
    terminal.print_table(console, table)
    console.print("1: time leaves no trace in it; near 0: the episode is a smooth path")
    console.print(
        f"picture  {folder / 'tsne.png'}\nto explore, in a browser  {folder / 'tsne.html'}",
        soft_wrap=True,
    )


PAPER_PARAMETERS = {"db": "5.15M", "icm": "4.86M", "disagreement": "26.47M", "cb": "none"}
"""As the paper's comparison of sizes has it: for ICM 2.21M + 2.65M, for CB nothing beyond the actor-critic."""


def print_bonuses(names: list[str]) -> None:
    """Every bonus with its size, and that of the paper where it tells it."""
    from ssedb.bonuses import bonus_class, make_bonus

    table = Table("bonus", box=box.SIMPLE)
    for heading in ("parameters", "trained", "paper"):
        table.add_column(heading, justify="right")
    table.add_column("what it does")
    for name in names:
        parameters = list(make_bonus(name, (4, 84, 84), 4).parameters())
        trained = sum(p.numel() for p in parameters if p.requires_grad)
        about = (bonus_class(name).__doc__ or "").strip().splitlines()[0].removesuffix(".")
        size = f"{sum(p.numel() for p in parameters):,}"
        table.add_row(name, size, f"{trained:,}", PAPER_PARAMETERS.get(name, "-"), about)
    console = terminal.console()
    terminal.print_table(console, table)
    console.print(
        "parameters at paper size with 4 actions; trained: those that the bonus's own loss moves; "
        "paper: what it lists (ICM 2.21M + 2.65M; CB nothing beyond the actor-critic)"
    )
