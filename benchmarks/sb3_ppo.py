"""Time PPO of Stable-Baselines3 against ours on the same emulators, in agent steps per second.

    pip install --no-deps -r requirements/rivals.txt
    python benchmarks/sb3_ppo.py
    python benchmarks/sb3_ppo.py --device cuda --num-envs 128 --minibatch-envs 16 --burn-in 4

The game's own reward alone is trained on. They take turns, each in a process of its own so that it
runs as its users run it: the emulators alone under random actions, Stable-Baselines3, ours. Each
has ale-py's AtariVectorEnv with the same settings. The learners have the same network (Nature CNN,
512 units, policy and value on top: as many parameters), rollout, epochs, minibatch size, learning
rate, discount, clip range and reward clipping, and compute in TF32 on a GPU (or as `--precision`
says; bf16 is for ours alone). What differs:

- Stable-Baselines3 takes stacks of 4 out of the emulator and keeps them as stacks in main memory;
  ours takes single frames and keeps each once, on the device.
- It shuffles transitions and normalises advantages in each minibatch; ours takes whole trajectories
  and normalises over the rollout. It clips gradients, ends returns with the episode and bootstraps
  at time limits; ours does none of these.
- It uses ReLU in the convolutions, ours leaky ReLU. Its Adam is not fused.
- Ours still asks its bonus, which is `none`: transitions are gathered for it, and it rewards
  nothing.
- Ours sets up the C library's allocator and GOMP_SPINCOUNT, as `ssedb train` does; with
  `--tune-both` Stable-Baselines3 gets them too. On a GPU ours replays CUDA graphs unless
  `--engine eager`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode

import ssedb
from ssedb.engine import host
from ssedb.trainer import Trainer

try:
    import stable_baselines3
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise SystemExit(
        f"{error}; install Stable-Baselines3 with: pip install --no-deps -r requirements/rivals.txt"
    ) from None


class Emulators(VecEnv):
    """Environments of ssedb.envs.atari with stacks of 4, behind Stable-Baselines3's interface."""

    def __init__(self, config: ssedb.TrainConfig) -> None:
        self.ale = AtariVectorEnv(
            config.env,
            config.num_envs,
            stack_num=4,
            frameskip=4,
            noop_max=config.noop_max,
            max_num_frames_per_episode=4 * config.max_episode_steps,
            repeat_action_probability=0.0,
            reward_clipping=False,
            use_fire_reset=False,
            episodic_life=False,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        super().__init__(
            config.num_envs, self.ale.single_observation_space, self.ale.single_action_space
        )

    def reset(self) -> np.ndarray:
        return self.ale.reset(seed=0)[0]

    def step_async(self, actions: np.ndarray) -> None:
        self.ale.send(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        obs, rewards, terminated, truncated, info = self.ale.recv()
        dones = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(dones):
            infos[i] = {
                "terminal_observation": info["final_obs"][i],
                "TimeLimit.truncated": bool(truncated[i]),
            }
        return obs, np.clip(rewards, -1, 1).astype(np.float32), dones, infos

    def close(self) -> None:
        self.ale.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs  # asked for render_mode only

    # A VecEnv must have these two; PPO calls neither.
    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(
        self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any
    ) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


Made = tuple[Callable[[], object], int]
"""Something that plays a rollout and learns from it, and how many parameters it trains."""


def emulators_alone(config: ssedb.TrainConfig) -> Made:
    env, rng = Emulators(config), np.random.default_rng(0)
    env.reset()

    def play() -> None:
        for _ in range(config.rollout_steps):
            env.ale.step(rng.integers(env.action_space.n, size=config.num_envs))

    return play, 0


def ours(config: ssedb.TrainConfig) -> Made:
    trainer = Trainer(config)
    return trainer.iterate, parameters(trainer.policy)


def theirs(config: ssedb.TrainConfig) -> Made:
    model = stable_baselines3.PPO(
        "CnnPolicy",
        Emulators(config),
        learning_rate=config.learning_rate,
        n_steps=config.rollout_steps,
        batch_size=config.rollout_steps * config.minibatch_envs,
        n_epochs=config.ppo_epochs,
        gamma=config.gamma,
        gae_lambda=config.gae_lambda,
        clip_range=config.clip,
        ent_coef=config.entropy_coef,
        seed=config.seed,
        device=config.device,
    )
    return lambda: model.learn(config.rollout_size, reset_num_timesteps=False), parameters(
        model.policy
    )


def parameters(policy: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in policy.parameters())


class Contestant:
    """Lives in a process of its own and works when it is its turn."""

    def __init__(self, make: Callable[..., Made], config: ssedb.TrainConfig, tuned: bool) -> None:
        spin = (
            {"GOMP_SPINCOUNT": "10000"} if tuned else {}
        )  # OpenMP reads it when the process starts
        with patch.dict(os.environ, {**spin, **os.environ}):
            self.pool = multiprocessing.get_context("spawn").Pool(1)
        self.parameters = self.pool.apply(_make, (make, config, tuned))
        self.rates: list[float] = []

    def rate(self, updates: int) -> float:
        """Agent steps per second of some updates."""
        return self.pool.apply(_rate, (updates,))


_here: dict[str, Any] = {}  # what the contestant's process keeps between its turns


def _make(make: Callable[..., Made], config: ssedb.TrainConfig, tuned: bool) -> int:
    if tuned:
        host.tune_allocator()
    tf32 = config.precision != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = (
        tf32  # theirs; ours goes by the config
    )
    _here["config"], (_here["update"], size) = config, make(config)
    return size


def _rate(updates: int) -> float:
    began = time.perf_counter()
    for _ in range(updates):
        _here["update"]()
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return updates * _here["config"].rollout_size / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--engine",
        choices=("auto", "eager", "fast"),
        default="auto",
        help="ours, as in `ssedb train`",
    )
    parser.add_argument(
        "--precision",
        choices=("tf32", "bf16", "fp32"),
        default="tf32",
        help="on a GPU (default tf32)",
    )
    parser.add_argument("--env", default="alien", help="an Atari game (default alien)")
    parser.add_argument("--num-envs", type=int, default=16, help="emulators of each (default 16)")
    parser.add_argument(
        "--rollout-steps", type=int, default=128, help="steps of each between updates (default 128)"
    )
    parser.add_argument(
        "--minibatch-envs", type=int, default=4, help="minibatch size / rollout steps (default 4)"
    )
    parser.add_argument(
        "--ppo-epochs", type=int, default=3, help="passes over a rollout (default 3)"
    )
    parser.add_argument(
        "--updates", type=int, default=1, help="rollouts and updates in a turn (default 1)"
    )
    parser.add_argument(
        "--burn-in", type=int, default=1, help="turns before the timed ones (default 1)"
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="timed turns, of which the median counts (default 5)"
    )
    parser.add_argument(
        "--tune-both", action="store_true", help="Stable-Baselines3 gets our allocator settings too"
    )
    args = parser.parse_args()
    sizes = (
        "device",
        "engine",
        "precision",
        "env",
        "num_envs",
        "rollout_steps",
        "minibatch_envs",
        "ppo_epochs",
    )
    config = ssedb.TrainConfig(
        **{name: getattr(args, name) for name in sizes},
        bonus="none",
        intrinsic_coef=0.0,
        extrinsic_coef=1.0,
        policy_layers=("relu",),
    )
    machine = host.machine(host.pick_device(args.device))
    tuned = ", tuned as ours" if args.tune_both else ""
    print(
        f"{machine['device']}, {machine['cores']} cores, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}, Stable-Baselines3 {stable_baselines3.__version__}{tuned}\n"
        f"{config.env}, {config.num_envs} envs x {config.rollout_steps} steps, "
        f"{config.ppo_epochs} epochs, "
        f"minibatches of {config.rollout_steps * config.minibatch_envs}, "
        f"{args.updates} updates a turn, median of {args.repeats} turns after {args.burn_in}",
        flush=True,
    )
    we = Contestant(ours, config, tuned=True)
    they = Contestant(theirs, config, args.tune_both)
    contestants = {
        "emulators alone": Contestant(emulators_alone, config, False),
        "Stable-Baselines3": they,
        "ours": we,
    }
    print(
        f"parameters: Stable-Baselines3 {they.parameters:,}, ours {we.parameters:,}\n", flush=True
    )
    for turn in range(args.burn_in + args.repeats):
        for contestant in contestants.values():
            rate = contestant.rate(args.updates)
            if turn >= args.burn_in:
                contestant.rates.append(rate)

    print("| | agent steps/s | / emulators alone | / Stable-Baselines3 |\n|---|---|---|---|")
    for name, contestant in contestants.items():
        over = [
            statistics.median(a / b for a, b in zip(contestant.rates, other.rates, strict=True))
            for other in (contestants["emulators alone"], they)
        ]
        rate = statistics.median(contestant.rates)
        print(f"| {name} | {rate:,.0f} | {over[0]:.2f} | {over[1]:.2f} |")
        contestant.pool.terminate()


if __name__ == "__main__":
    main()
