"""What the commands print when they are done."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table

from ssedb.config import TrainConfig
from ssedb.evaluate import Evaluation
from ssedb.trainer import TrainResult


def print_run(result: TrainResult, config: TrainConfig) -> None:
    """What a run did, and where it is."""
    last, console = result.summary["last"], Console(highlight=False)
    table = Table(title=f"{config.bonus} on {config.env}, noise {config.noise}", show_header=False, title_justify="left")
    table.add_row("agent steps", f"{result.steps:,} of {config.steps:,}")
    if last:
        table.add_row("steps per second", f"{last['sps']:,.0f} (last update)")
    score = result.summary["score"]
    table.add_row("episodes ended", f"{result.summary['episodes']:,}")
    table.add_row("score, mean of the last 100", "no episode has ended yet" if score is None else f"{score:.2f}")
    table.add_row("score, best", "-" if score is None else f"{result.summary['score_best']:.2f}")
    names = {
        "bonus_raw": "bonus, mean",
        "i_upper": "I_upper (nats in z)",
        "i_pred": "I_pred (log-likelihood)",
        "i_nce": "I_nce",
        "i_nce_chance": "I_nce of blind guessing",
        "rank_state": "rank of the representation",
    }
    for name, label in names.items():
        if name in last:
            table.add_row(label, f"{last[name]:.3f}")
    console.print(table)
    console.print(f"run folder   {result.out}", soft_wrap=True)
    console.print(
        f"metrics      {result.out / 'metrics.jsonl'}, or: tensorboard --logdir {result.out / 'tb'}", soft_wrap=True
    )
    console.print(f"watch it     ssedb eval {result.out} --episodes 5 --video", soft_wrap=True)
    if not result.finished:
        console.print(f"stopped early; go on with: ssedb train --resume {result.out}", soft_wrap=True)


def print_evaluation(result: Evaluation) -> None:
    """Scores of the episodes played."""
    console = Console(highlight=False)
    scores = np.array(result.scores)
    console.print(
        f"{result.env}, noise {result.noise}, agent of step {result.steps:,}: score {scores.mean():.2f} "
        f"(std {scores.std():.2f}, from {scores.min():.0f} to {scores.max():.0f}) over {len(scores)} episodes "
        f"of {np.mean(result.lengths):.0f} steps on average",
        soft_wrap=True,
    )
    if result.video is not None:
        console.print(f"video  {result.video}", soft_wrap=True)


def print_bonuses(names: list[str]) -> None:
    """Every bonus with its size."""
    from ssedb.bonuses import bonus_class, make_bonus

    table = Table("bonus", "parameters (18 actions)", "trained by gradient", "what it pays for")
    for name in names:
        parameters = list(make_bonus(name, (4, 84, 84), 18).parameters())
        trained = sum(p.numel() for p in parameters if p.requires_grad)
        about = (bonus_class(name).__doc__ or "").strip().splitlines()[0]
        table.add_row(name, f"{sum(p.numel() for p in parameters):,}", f"{trained:,}", about)
    Console(highlight=False).print(table)
