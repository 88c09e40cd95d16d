"""State of a run's bottleneck: not opened yet, open, or shut, which is the collapse alarm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

State = Literal["not opened yet", "open", "shut"]

NEAR = 0.1
"""Nats: so little information in z, and so little gain over blind guessing, count as none."""
RULE = (
    "Medians over the last tenth of a run decide. "
    f"A bottleneck is open if I_nce is at least {NEAR} nats above blind guessing "
    "(minus the log of the minibatch's size): z tells about the next state. "
    f"It is shut if I_nce is not, and either I_upper is below {NEAR} nats "
    "or an earlier tenth was open. This raises an alarm, "
    "because the bonus is about constant if z is empty. "
    "It has not opened yet if z keeps information (I_upper) "
    "that does not tell about the next state so far. "
    "Without the contrastive term (alpha3 = 0), I_upper alone decides."
)


@dataclass(frozen=True)
class Bottleneck:
    """State of a run's bottleneck at its end."""

    state: State
    i_upper: float
    over_chance: float  # I_nce minus that of blind guessing


def bottleneck(metrics: Mapping[str, np.ndarray], contrast: bool = True) -> Bottleneck | None:
    """Judge a run by its curves; return None without a bottleneck or finite metrics.

    `contrast` says whether I_nce was trained.
    """
    if not all(key in metrics for key in ("i_upper", "i_nce", "i_nce_chance")):
        return None
    upper, over = metrics["i_upper"], metrics["i_nce"] - metrics["i_nce_chance"]
    known = np.isfinite(upper) & np.isfinite(over)
    if not known.any():
        return None
    upper, over = upper[known], over[known]
    tenth = max(1, len(over) // 10)
    i_upper, over_chance = float(np.median(upper[-tenth:])), float(np.median(over[-tenth:]))
    was_open = any(np.median(over[i : i + tenth]) >= NEAR for i in range(0, len(over), tenth))
    is_open = over_chance >= NEAR if contrast else i_upper >= NEAR
    state: State = "open" if is_open else "shut" if i_upper < NEAR or was_open else "not opened yet"
    return Bottleneck(state, i_upper, over_chance)
