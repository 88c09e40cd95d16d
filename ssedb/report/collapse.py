"""The collapse alarm: a bottleneck that lets nothing through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

NEAR = 0.1
"""Nats: so little information in z, and so little gain over blind guessing, count as none."""
RULE = (
    f"The alarm rings when, by the median over the last tenth of a run, z holds less than {NEAR} nats (I_upper) and the "
    f"contrast is less than {NEAR} nats better than blind guessing (I_nce against minus the log of the minibatch). Then the "
    "bottleneck is shut: the bonus is about constant and pays for nothing."
)


@dataclass(frozen=True)
class Bottleneck:
    """How open a run's bottleneck was at its end."""

    i_upper: float
    over_chance: float  # I_nce minus that of blind guessing

    @property
    def collapsed(self) -> bool:
        return self.i_upper < NEAR and self.over_chance < NEAR


def bottleneck(metrics: Mapping[str, np.ndarray]) -> Bottleneck | None:
    """Of a run's curves; None where the bonus has no bottleneck, or nothing finite was logged."""
    if not all(key in metrics for key in ("i_upper", "i_nce", "i_nce_chance")):
        return None
    upper, over = metrics["i_upper"], metrics["i_nce"] - metrics["i_nce_chance"]
    known = np.isfinite(upper) & np.isfinite(over)
    last = max(1, int(known.sum()) // 10)
    if not known.any():
        return None
    return Bottleneck(float(np.median(upper[known][-last:])), float(np.median(over[known][-last:])))
