"""`ssedb eval`: run episodes with a trained agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from ssedb import terminal
from ssedb.cli.parsing import parse
from ssedb.terminal import plural

if TYPE_CHECKING:
    from ssedb.runs.evaluation import Evaluation


@dataclass(frozen=True)
class Eval:
    """Run episodes with a trained agent and print their scores."""

    run: tyro.conf.Positional[Path]
    """Folder of the run."""
    episodes: int = 10
    """Episodes to run."""
    video: bool = False
    """Also write a video of the first episode to videos/ (needs `pip install 'ssedb[report]'`)."""
    stills: int = 0
    """Write so many frames of the first episode to a PNG in videos/ (needs `ssedb[report]`)."""
    seed: int = 1000
    """Seed of the episodes."""
    device: str = "auto"
    """Where to run the policy: auto, cpu, cuda or cuda:N."""


def main(args: list[str]) -> int:
    """Run the command; return the exit code."""
    options = parse(Eval, args, "eval")
    from ssedb.runs.evaluation import evaluate

    print_evaluation(evaluate(**vars(options)))
    return 0


def print_evaluation(result: Evaluation) -> None:
    """Print the scores of the episodes."""
    import numpy as np

    scores = np.array(result.scores)
    text = (
        f"{result.env}, noise {result.noise}, agent of step {result.steps:,}: score "
        f"{scores.mean():.2f} (std {scores.std():.2f}, from {scores.min():.0f} to "
        f"{scores.max():.0f}) over {plural(len(scores), 'episode')} of "
        f"{np.mean(result.lengths):.0f} steps on average"
    )
    print(terminal.wrapped(text))
    made = {"video": result.video, "stills": result.stills}
    if places := {name: path for name, path in made.items() if path is not None}:
        terminal.print_places(places)
