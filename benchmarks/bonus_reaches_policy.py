"""Does the bonus reach the policy? Train twice with one seed, the bonus times 0 and times 1000.

    pip install --no-deps -r requirements/rivals.txt
    python benchmarks/bonus_reaches_policy.py

CartPole, RND, two rollouts, one row for each trainer:

- rllte-core's own PPO with its own RND, `beta` 0 and 1000.
- Stable-Baselines3's PPO with our callback, `intrinsic_coef` 0 and 1000, and plain.

If the largest difference between the two policies' weights is 0, the bonus changes nothing.
rllte-core's on-policy agents compute the returns, then add the bonus to the stored rewards, which
nothing reads again. `steps taken` is how often the constructor of the reward has stepped the
environments. rllte-core imports torchvision for an augmentation that PPO does not use; where
torchvision is not installed, an empty module stands in. On 16 November 2026, with rllte-core 1.0.1,
Stable-Baselines3 2.9.2 and torch 2.13.0 on a CPU:

| | largest difference of weights, bonus x 0 and x 1000 | steps taken |
|---|---|---|
| rllte-core 1.0.1, PPO and RND | 0.000000 | 2560 |
| Stable-Baselines3 2.9.2, PPO and our RND | 0.054169 | 0 |

with weight 0, our policy is plain PPO's to the last bit: yes
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import types
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import gymnasium
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from torch import Tensor

from ssedb.integrations.sb3 import IntrinsicRewardCallback

STEPS, ENVS, ROLLOUTS = 64, 4, 2


class TorchEnvs:
    """CartPoles that speak in tensors, as rllte-core's agents want to be served."""

    def __init__(self) -> None:
        self.envs = gymnasium.make_vec("CartPole-v1", ENVS, vectorization_mode="sync")
        self.observation_space = self.envs.single_observation_space
        self.action_space = self.envs.single_action_space
        self.num_envs = ENVS
        self.steps = 0
        self.observation_space.seed(0)
        self.action_space.seed(0)

    @property
    def unwrapped(self) -> TorchEnvs:
        return self

    def reset(self, seed: int | None = None) -> tuple[Tensor, dict[str, Any]]:
        obs, info = self.envs.reset(seed=seed)
        return torch.as_tensor(obs), info

    def step(self, actions: Tensor) -> tuple[Any, ...]:
        self.steps += 1
        obs, rewards, terminated, truncated, _ = self.envs.step(actions.numpy())
        return *(torch.as_tensor(x).float() for x in (obs, rewards, terminated, truncated)), {}

    def close(self) -> None:
        self.envs.close()


def rllte_weights(beta: float) -> tuple[Tensor, int]:
    """Return the policy's weights after training, and how often the reward has stepped the envs."""
    if "torchvision" not in sys.modules and find_spec("torchvision") is None:
        transforms = types.ModuleType("torchvision.transforms")
        transforms.ColorJitter = object  # type: ignore[attr-defined]
        sys.modules["torchvision"] = types.ModuleType("torchvision")
        sys.modules["torchvision.transforms"] = transforms
    from rllte.agent import PPO as TheirPPO
    from rllte.xplore.reward import RND

    torch.manual_seed(0)
    envs = TorchEnvs()
    with contextlib.redirect_stdout(io.StringIO()):
        agent = TheirPPO(envs, seed=0, device="cpu", num_steps=STEPS, batch_size=64, hidden_dim=32)
        reward = RND(envs, device="cpu", beta=beta)
        taken = envs.steps
        agent.set(reward=reward)
        agent.train(num_train_steps=ROLLOUTS * STEPS * ENVS, log_interval=100)
    assert reward.global_step == ROLLOUTS  # it was asked for every rollout
    return flat(agent.policy), taken


def sb3_weights(coef: float | None) -> Tensor:
    """Return the policy's weights after training with our callback, or without it."""
    envs = make_vec_env("CartPole-v1", ENVS, seed=0)
    model = PPO("MlpPolicy", envs, n_steps=STEPS, batch_size=64, seed=0, device="cpu")
    callback = None
    if coef is not None:
        callback = IntrinsicRewardCallback("rnd", intrinsic_coef=coef, preset="rooms")
    return flat(model.learn(ROLLOUTS * STEPS * ENVS, callback=callback).policy)


def flat(module: torch.nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


def main() -> None:
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # rllte-core logs to where it is run
        try:
            (their_zero, taken), (their_much, _) = map(rllte_weights, (0.0, 1000.0))
        finally:
            os.chdir(here)
    zero, much, plain = map(sb3_weights, (0.0, 1000.0, None))
    theirs = f"rllte-core {version('rllte-core')}, PPO and RND"
    ours = f"Stable-Baselines3 {version('stable-baselines3')}, PPO and our RND"
    print("| | largest difference of weights, bonus x 0 and x 1000 | steps taken |\n|---|---|---|")
    print(f"| {theirs} | {(their_zero - their_much).abs().max():.6f} | {taken} |")
    print(f"| {ours} | {(zero - much).abs().max():.6f} | 0 |")
    same = "yes" if torch.equal(zero, plain) else "no"
    print(f"\nwith weight 0, our policy is plain PPO's to the last bit: {same}")


if __name__ == "__main__":
    main()
