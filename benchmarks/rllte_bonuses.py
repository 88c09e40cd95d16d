"""Time ICM, RND and Disagreement of rllte-core against ours: rewards of a rollout, and updates.

    pip install --no-deps -r requirements/rivals.txt
    python benchmarks/rllte_bonuses.py
    python benchmarks/rllte_bonuses.py --device cuda --envs 128 --batch-size 2048

Both sides get the same transitions (random bytes, steps x envs stacks of four 84x84 frames, 18
actions) in one process, take turns, and run plain PyTorch in float32 (on a GPU with TF32 in
convolutions, as torch does unless told otherwise): ours as `make_bonus` gives it, without the CUDA
graphs of the trainer. Both have the Nature encoder with 512 features, Adam, and the same batch
size, passes and number of models in the ensemble; neither scales its rewards. Both have the
allocator that ssedb sets up, which is the faster one. What cannot be made the same:

- Encoder. Theirs has ReLU, after the features too; ours has leaky ReLU, and none after the
  features.
- Observations. rllte-core stores them as float32 and gets them so; ours are bytes. Theirs come out
  of a DataLoader, one by one; ours are indexed.
- ICM. Their inverse and forward models have one hidden layer of 256. Our inverse model has one of
  512; our forward model has ten layers of 512, and every one sees the action. No gradient of our
  forward loss reaches the encoder; of theirs it does.
- RND. Theirs looks at whole stacks, learns from `obs` while it rewards `next_obs`, and its
  predictor is the encoder. Ours looks at the newest frame, rewards and learns from `next_obs`, and
  its predictor has two more layers of 512. Both scale pixels by running statistics; theirs are
  computed on the CPU.
- Disagreement. Forward models as in ICM. Theirs trains one model of the ensemble per minibatch,
  ours trains all of them.
- rllte-core waits for the device to read its losses after every step.

The work is not the same, so it is counted: GFLOP of the matrix products and convolutions.
"Faster by" is their time over ours in the same turn; above 1, ours is faster. "At equal work"
divides each time by its GFLOP first.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from types import SimpleNamespace

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import ssedb
from ssedb.engine import host

try:
    from rllte.common.utils import TorchRunningMeanStd
    from rllte.xplore.reward import ICM, RND, Disagreement
except ImportError as error:
    raise SystemExit(
        f"{error}; install rllte-core with: pip install --no-deps -r requirements/rivals.txt"
    ) from None

RIVALS = {"icm": ICM, "rnd": RND, "disagreement": Disagreement}
STACK, ACTIONS, FEATURES, LEARNING_RATE = (4, 84, 84), 18, 512, 1e-4


@dataclass
class Side:
    """One library's bonus, bound to the rollout."""

    reward: Callable[[], Tensor]
    update: Callable[[], None]
    trained: int
    fixed: int


def theirs(name: str, batch: dict[str, Tensor], args: argparse.Namespace) -> Side:
    env = SimpleNamespace(
        observation_space=Box(0, 255, STACK), action_space=Discrete(ACTIONS), num_envs=args.envs
    )
    env.unwrapped = env
    options = dict(latent_dim=FEATURES, lr=LEARNING_RATE, batch_size=args.batch_size)
    options |= dict(rwd_norm_type="none", obs_norm_type="none")  # obs / 255, as ours
    if name == "disagreement":
        options["ensemble_size"] = args.models
    bonus = RIVALS[name](env, args.device, **options)
    if (
        name == "rnd"
    ):  # its default; set afterwards, because it would first play 2560 steps in every environment
        bonus.obs_norm_type, bonus.obs_norm = "rms", TorchRunningMeanStd(shape=STACK)
    floats = {
        key: value.float() if key.endswith("observations") else value
        for key, value in batch.items()
    }
    zeros = torch.zeros(args.steps, args.envs, device=args.device)
    samples = {**floats, "rewards": zeros, "terminateds": zeros, "truncateds": zeros}

    def update() -> None:
        for _ in range(args.epochs):
            bonus.update(samples)

    modules = [value for value in vars(bonus).values() if isinstance(value, nn.Module)] + getattr(
        bonus, "ensemble", []
    )
    return Side(lambda: bonus.compute(samples, sync=False), update, *count(nn.ModuleList(modules)))


def ours(name: str, batch: dict[str, Tensor], args: argparse.Namespace) -> Side:
    options = dict(feature_dim=FEATURES) | (
        dict(models=args.models) if name == "disagreement" else {}
    )
    bonus = ssedb.make_bonus(name, STACK, ACTIONS, **options).to(args.device)
    trained = [parameter for parameter in bonus.parameters() if parameter.requires_grad]
    adam = torch.optim.Adam(trained, lr=LEARNING_RATE, fused=True)
    obs, actions, next_obs = (
        batch[key].flatten(0, 1) for key in ("observations", "actions", "next_observations")
    )

    def minibatches(order: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for rows in order.to(args.device).split(args.batch_size):
            yield obs[rows], actions[rows], next_obs[rows]

    def reward() -> Tensor:
        rewards = [
            bonus.reward(*transitions) for transitions in minibatches(torch.arange(len(obs)))
        ]
        for transitions in minibatches(torch.arange(len(obs))) if name == "rnd" else ():
            bonus.observe(*transitions)
        return torch.cat(rewards).view(args.steps, args.envs)

    def update() -> None:
        for _ in range(args.epochs):
            for transitions in minibatches(torch.randperm(len(obs))):
                loss, _ = bonus.loss(*transitions)
                adam.zero_grad()
                loss.backward()
                adam.step()
                bonus.after_step()
            bonus.after_epoch()
        bonus.after_rollout()

    return Side(reward, update, *count(bonus))


def count(module: nn.Module) -> tuple[int, int]:
    """Parameters that are trained, and those that stay."""
    sizes = [(parameter.requires_grad, parameter.numel()) for parameter in module.parameters()]
    return sum(size for trained, size in sizes if trained), sum(
        size for trained, size in sizes if not trained
    )


def work(part: Callable[[], object]) -> float:
    """GFLOP of matrix products and convolutions."""
    with FlopCounterMode(display=False) as counter:
        part()
    return counter.get_total_flops() / 1e9


def seconds(part: Callable[[], object], device: str) -> float:
    wait(device)
    began = time.perf_counter()
    part()
    wait(device)
    return time.perf_counter() - began


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def compare(name: str, batch: dict[str, Tensor], args: argparse.Namespace) -> Iterator[str]:
    """The rows of one bonus."""
    sides = theirs(name, batch, args), ours(name, batch, args)
    sizes = [f"{side.trained / 1e6:.2f}M + {side.fixed / 1e6:.2f}M" for side in sides]
    for part in ("reward", "update"):
        they, we = (getattr(side, part) for side in sides)
        flops = work(they), work(we)  # which is the first turn of the burn-in
        for _ in range(args.burn_in - 1):
            they(), we()
        times = [
            (seconds(they, args.device), seconds(we, args.device)) for _ in range(args.repeats)
        ]
        medians = [1000 * statistics.median(side) for side in zip(*times, strict=True)]
        faster = statistics.median(their_time / our_time for their_time, our_time in times)
        equal_work = faster * flops[1] / flops[0]
        cells = [
            f"{name}, {part}",
            *(f"{ms:,.1f}" for ms in medians),
            f"**{faster:.2f}**",
            *(f"{gflop:,.1f}" for gflop in flops),
            f"{equal_work:.2f}",
            *sizes,
        ]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--steps", type=int, default=128, help="steps of the rollout (default 128)")
    parser.add_argument(
        "--envs", type=int, default=8, help="environments of the rollout (default 8)"
    )
    parser.add_argument(
        "--batch-size", type=int, default=256, help="transitions in a minibatch (default 256)"
    )
    parser.add_argument(
        "--epochs", type=int, default=1, help="passes over the rollout in learning (default 1)"
    )
    parser.add_argument(
        "--models", type=int, default=10, help="forward models of Disagreement (default 10)"
    )
    parser.add_argument(
        "--burn-in", type=int, default=2, help="turns before the timed ones (default 2)"
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="timed turns, of which the median counts (default 5)"
    )
    parser.add_argument("--bonuses", nargs="+", choices=list(RIVALS), default=list(RIVALS))
    args = parser.parse_args()
    device = host.pick_device(args.device)
    host.tune_allocator()
    torch.manual_seed(0)
    size = (args.steps, args.envs)
    batch = {
        "observations": torch.randint(256, (*size, *STACK), dtype=torch.uint8, device=device),
        "actions": torch.randint(ACTIONS, size, device=device),
        "next_observations": torch.randint(256, (*size, *STACK), dtype=torch.uint8, device=device),
    }
    machine = host.machine(device)
    print(
        f"{machine['device']}, {machine['cores']} cores, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}\n"
        f"rllte-core {version('rllte-core')}; {args.steps} steps x {args.envs} envs, "
        f"minibatches of {args.batch_size}, {args.epochs} epochs, {args.models} models, "
        f"median of {args.repeats} turns after {args.burn_in}\n"
    )
    columns = [
        "",
        "rllte, ms",
        "ours, ms",
        "ours faster by",
        "rllte, GFLOP",
        "ours, GFLOP",
        "faster at equal work",
    ]
    columns += ["rllte, parameters (trained + fixed)", "ours, parameters"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for name in args.bonuses:
        for row in compare(name, batch, args):
            print(row, flush=True)


if __name__ == "__main__":
    main()
