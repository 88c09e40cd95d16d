"""`ssedb demo`: show in minutes what noise does to RND and to DB."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssedb.cli.parsing import parse
from ssedb.config import TrainConfig
from ssedb.envs.names import rooms_world
from ssedb.errors import ConfigError

SETTINGS: dict[str, Any] = dict(
    num_envs=64,
    rollout_steps=16,
    minibatch_envs=16,
    ppo_epochs=4,
    bonus_epochs=4,
    clip=0.2,
    gamma=0.97,
    entropy_coef=0.01,
    intrinsic_coef=5.0,
    policy_channels=(16, 32, 32),
    obs_norm_steps=1024,
)
"""Settings that differ from `--preset rooms --fidelity ours`, found by trying (docs/rooms.md)."""


@dataclass(frozen=True)
class Demo:
    """Show what noise does to exploration: RND with and without it, DB under it, and chance."""

    env: str = "rooms-tiny"
    """Which Rooms world."""
    noise: str = "random-box"
    """What disturbs the agents; `ssedb list noises` shows the choices."""
    steps: int = 90_112
    """Agent steps of each run."""
    seeds: int = 3
    """Runs of each agent, with different seeds."""
    out: Path = Path("runs/demo")
    """Folder for the pictures and numbers; what is there is replaced."""


def main(args: list[str]) -> int:
    """Run the command; return the exit code."""
    options = parse(Demo, args, "demo")
    asked = {name: value for name, value in vars(options).items() if name != "seeds"}
    config = TrainConfig(preset="rooms", fidelity="ours", **SETTINGS, **asked)
    if rooms_world(config.env) is None:
        raise ConfigError(
            f"env={config.env}: the demo needs a world whose true state is known; "
            "use rooms-tiny, rooms-small, rooms or rooms-large"
        )
    if not 1 <= options.seeds <= 1000:
        raise ConfigError(f"seeds={options.seeds}: must lie between 1 and 1000")
    from ssedb.demo import run_demo

    run_demo(config, options.seeds)
    return 0
