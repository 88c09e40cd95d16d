"""`ssedb bench`: measure the speed of training on this machine."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table

from ssedb import terminal
from ssedb.cli.parsing import parse
from ssedb.config import TrainConfig
from ssedb.errors import ConfigError
from ssedb.options import Preset

if TYPE_CHECKING:
    from ssedb.bench import Rates


@dataclass(frozen=True)
class Bench:
    """Measure the speed of training on this machine: of each stage, and of all together."""

    env: str | None = None
    """Environment; by default breakout, with `--preset rooms` the small Rooms."""
    noise: str = "none"
    """What disturbs the agent; `ssedb list noises` shows the choices."""
    preset: Preset = "paper"
    """Sizes of networks and rollout."""
    device: str = "auto"
    """Where to train: auto, cpu, cuda or cuda:N."""
    num_envs: int | None = None
    """Environments stepped in parallel; by default the preset's."""
    updates: int = 2
    """Training iterations to time."""
    precision: Literal["bf16", "tf32", "fp32"] = "bf16"
    """Precision of the networks on a GPU."""
    engine: Literal["auto", "eager", "fast"] = "auto"
    """On a GPU, fast and auto replay CUDA graphs and update the bonus while emulators step."""
    deterministic: bool = False
    """Time the mode that resumes bit for bit on a GPU."""


def main(args: list[str]) -> int:
    """Run the command; return the exit code."""
    options = parse(Bench, args, "bench")
    if options.updates < 1:
        raise ConfigError(f"updates={options.updates}: must be 1 or more")
    sizes: dict[str, Any] = {} if options.num_envs is None else {"num_envs": options.num_envs}
    names = ("noise", "preset", "device", "precision", "engine", "deterministic")
    env = options.env or ("rooms-small" if options.preset == "rooms" else "breakout")
    config = TrainConfig(env=env, **{name: getattr(options, name) for name in names}, **sizes)
    from ssedb.bench import measure_rates
    from ssedb.engine.precision import deterministic_kernels

    with deterministic_kernels() if config.deterministic else nullcontext():
        rates = measure_rates(config, options.updates, partial(print, flush=True))
    print_rates(rates, config)
    return 0


def print_rates(rates: Rates, config: TrainConfig) -> None:
    """Print the speed of each part, and of the whole beside the ideal of its parts in turn."""
    speed, games = rates.by_part, "library" in rates.by_part
    envs = "the games in the pools of training" if games else "the environments"
    meanings = {
        "library": "all games in one vector of the emulator library, random actions",
        "emulator": f"{envs}, random actions",
        "inference": "choosing actions",
        "bonus": "intrinsic rewards",
        "update": f"PPO x{config.ppo_epochs} and {config.bonus} x{config.bonus_epochs}",
        "trained": "all of it, as `ssedb train` runs it",
    }
    table = Table("part", "agent steps/s", "")
    for part, meaning in meanings.items():
        if part in speed:
            table.add_row(part, f"{speed[part]:,.0f}", meaning)
    if games:
        table.add_row("trained / library", rates.whole.against("library"), "")
    table.add_row("trained / emulator", rates.whole.against("alone"), "")
    ideal = "one part after the other: 1 / (1/emulator + 1/inference + 1/bonus + 1/update)"
    table.add_row("ideal", f"{speed['ideal']:,.0f}", ideal)
    table.add_row("trained / ideal", f"{speed['trained'] / speed['ideal']:.3f}", "")
    for plain in ("update, plain", "update, plain with our allocator"):
        if plain in speed:
            ratio = f"ours is {speed['update'] / speed[plain]:.2f}x as fast"
            table.add_row(plain, f"{speed[plain]:,.0f}", ratio)
    if rates.gpu_memory:
        table.add_row(
            "GPU memory", rates.gpu_memory, "allocated, and held by torch, at its highest"
        )
    terminal.print_table(table)
