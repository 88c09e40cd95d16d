"""What runs when in training, as a picture: emulators, host and GPU over one iteration and the beginning of the next.

    python benchmarks/timeline.py record --device cuda --out timeline.json
    python benchmarks/timeline.py draw timeline.json --out timeline.png      # needs matplotlib

The bonus model is updated while the next rollout is collected, on a side stream.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import ssedb
from ssedb.engine.cuda import Transfer
from ssedb.trainer import Trainer

COLOURS = {
    "emulators": "#0072B2",
    "waiting": "#999999",
    "rewards": "#E69F00",
    "PPO": "#D55E00",
    "bonus model": "#009E73",
}


class Recorder:
    """Spans [row, kind, begin, end] in seconds since the beginning; of the GPU, its own, by events on its streams."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, str, float, float]] = []
        self.events: list[tuple[str, str, torch.cuda.Event, torch.cuda.Event]] = []
        _wait()
        self.zero, self.base = time.perf_counter(), _event()

    def host(self, row: str, kind: str, began: float) -> None:
        self.spans.append((row, kind, began - self.zero, time.perf_counter() - self.zero))

    @contextmanager
    def gpu(self, row: str, kind: str) -> Iterator[None]:
        if not torch.cuda.is_available():
            began = time.perf_counter()
            yield
            self.host(row, kind, began)
            return
        first = _event()
        yield
        self.events.append((row, kind, first, _event()))

    def watch(self, owner: Any, name: str, row: str, kind: str) -> None:
        """Every call of a function becomes a span of the GPU."""
        function: Callable[..., Any] = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            with self.gpu(row, kind):
                return function(*args, **kwargs)

        setattr(owner, name, call)

    def watch_pool(self, transfer: Transfer, row: str) -> None:
        """From when the actions have come to the host until the answer is there the emulators step; else the pool waits."""
        downloaded, stage, since = transfer.downloaded, transfer.stage, time.perf_counter()

        def mark(kind: str) -> None:
            nonlocal since
            self.host(row, kind, since)
            since = time.perf_counter()

        def landing() -> Any:
            actions = downloaded()
            mark("waiting")
            return actions

        def putting(*arrays: Any) -> None:
            stage(*arrays)
            mark("emulators")

        transfer.downloaded, transfer.stage = landing, putting  # type: ignore[method-assign]

    def result(self) -> list[tuple[str, str, float, float]]:
        _wait()
        of_gpu = [
            (row, kind, self.base.elapsed_time(first) / 1e3, self.base.elapsed_time(last) / 1e3)
            for row, kind, first, last in self.events
        ]
        return sorted(self.spans + of_gpu, key=lambda span: span[2])


def _event() -> Any:
    if not torch.cuda.is_available():
        return None
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def record(options: argparse.Namespace) -> None:
    sizes = (
        {}
        if options.num_envs is None
        else {"num_envs": options.num_envs, "minibatch_envs": options.num_envs // 8}
    )
    config = ssedb.TrainConfig(
        env=options.env, device=options.device, preset=options.preset, bonus_epochs=3, **sizes
    )
    trainer = Trainer(config)
    for _ in range(4):
        trainer.iterate()
    recorder = Recorder()
    for number, pool in enumerate(getattr(trainer.collector, "pools", [])):
        recorder.watch_pool(pool.transfer, f"pool {number + 1}")
    recorder.watch(trainer, "reward_step", "GPU", "rewards")
    recorder.watch(trainer, "policy_step", "GPU", "PPO")
    recorder.watch(trainer, "bonus_step", "GPU, side stream", "bonus model")
    trainer.iterate()
    trainer.iterate()
    trainer.finish()
    Path(options.out).write_text(json.dumps(recorder.result()))
    trainer.close()


def draw(options: argparse.Namespace) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    spans = json.loads(Path(options.file).read_text())
    rows = sorted({row for row, *_ in spans}, key=lambda row: (row.startswith("GPU"), row))
    figure, axes = plt.subplots(figsize=(10, 0.45 * len(rows) + 1.4))
    for row, kind, begin, end in spans:
        if begin * 1e3 < options.milliseconds:
            width = min(end * 1e3, options.milliseconds) - begin * 1e3
            axes.barh(
                rows.index(row),
                width,
                left=begin * 1e3,
                height=0.8,
                color=COLOURS[kind],
                linewidth=0,
            )
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds")
    axes.set_xlim(0, options.milliseconds)
    kinds = [kind for kind in COLOURS if any(kind == span[1] for span in spans)]
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[kind]) for kind in kinds]
    axes.legend(
        handles,
        kinds,
        ncol=len(kinds),
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        frameon=False,
    )
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(options.out, dpi=150, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record")
    recording.add_argument("--env", default="boxing")
    recording.add_argument("--device", default="auto")
    recording.add_argument("--preset", default="paper")
    recording.add_argument("--num-envs", type=int)
    recording.add_argument("--out", default="timeline.json")
    recording.set_defaults(run=record)
    drawing = commands.add_parser("draw")
    drawing.add_argument("file")
    drawing.add_argument("--milliseconds", type=float, default=1500.0)
    drawing.add_argument("--out", default="timeline.png")
    drawing.set_defaults(run=draw)
    options = parser.parse_args()
    try:
        options.run(options)
    except (ssedb.ConfigError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
