"""`ssedb demo`: see in minutes why noise fools curiosity and not DB."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ssedb.cli.parsing import parse
from ssedb.config import TrainConfig
from ssedb.envs.names import rooms_world
from ssedb.errors import ConfigError


@dataclass(frozen=True)
class Demo:
    """Show why noise fools curiosity and not DB: compare DB, RND and a random agent on noisy Rooms."""

    env: str = "rooms-small"
    """Which Rooms world."""
    noise: str = "random-box"
    """What disturbs the agents; `ssedb list noises` shows the choices."""
    steps: int = 20_480
    """Agent steps of each run."""
    seeds: int = 2
    """Runs of each method."""
    out: Path = Path("runs/demo")
    """Folder for the pictures and numbers; what is there is replaced."""


def main(args: list[str]) -> int:
    """Run the command; return the exit code."""
    options = parse(Demo, args, "demo")
    config = TrainConfig(
        env=options.env,
        noise=options.noise,
        steps=options.steps,
        preset="rooms",
        fidelity="ours",
        reward_scale="run",
        out=options.out,
    )
    if rooms_world(config.env) is None:
        raise ConfigError(
            f"env={config.env}: the demo needs a world whose true state is known; "
            "use rooms-small, rooms or rooms-large"
        )
    if not 1 <= options.seeds <= 1000:
        raise ConfigError(f"seeds={options.seeds}: must lie between 1 and 1000")
    from ssedb.demo import run_demo

    run_demo(config, options.seeds)
    return 0
