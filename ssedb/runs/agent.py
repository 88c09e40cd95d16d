"""A trained agent, loaded from its run's folder."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ssedb.actions import Choices, NumActions, action_space, from_data
from ssedb.bonuses import make_bonus
from ssedb.config import TrainConfig
from ssedb.engine.host import pick_device, tune_allocator
from ssedb.errors import ConfigError
from ssedb.networks import ActorCritic
from ssedb.runs import checkpoint
from ssedb.runs.folder import require_checkpoint, require_own, saved_config
from ssedb.terminal import literal

if TYPE_CHECKING:
    import numpy as np

    from ssedb.bonuses.base import Bonus
    from ssedb.envs.noisy import NoisyEnv


class Agent:
    """Policy of a run's newest checkpoint, with the run's settings.

    Attributes:
        config: the run's settings.
        state: contents of the checkpoint (docs/engine.md), on the CPU except for `env`.
        steps: agent steps that the run had made.
        device: where the policy is.
        actions: the action space.
        obs_shape: shape of one observation, [4, H, W] for images or [D] for vectors.
        policy: the actor-critic, an `ssedb.networks.ActorCritic`.
    """

    def __init__(
        self, config: TrainConfig, state: dict[str, Any], steps: int, device: torch.device
    ) -> None:
        self.config = config
        self.state = state
        self.steps = steps
        self.device = device
        sizes = (config.policy_channels, config.policy_width, config.policy_layers)
        with checkpoint.must_fit(config.out):
            saved = state.get("actions")  # older checkpoints are of discrete actions
            discrete = len(state["policy"]["policy.bias"])
            self.actions = action_space(discrete) if saved is None else from_data(saved)
            self.obs_shape = tuple(state["policy"]["normalize.mean"].shape[1:])
            # Weights that are replaced at once must not cost the caller's randomness.
            with torch.random.fork_rng([]):
                self.policy = ActorCritic(self.obs_shape, self.actions, *sizes).to(device)
            self.policy.load_state_dict(state["policy"])

    @property
    def num_actions(self) -> NumActions:
        """The number of discrete actions, or the action space."""
        single = isinstance(self.actions, Choices) and self.actions.single
        return self.actions.width if single else self.actions

    @torch.no_grad()
    def act(self, obs: Tensor | np.ndarray, *, greedy: bool = False) -> Tensor:
        """Choose actions.

        Args:
            obs: stacks of the four newest frames, the newest last, uint8 [N, 4, H, W], as large as
                in training, 84x84 almost everywhere; or vectors, float32 [N, D]. One observation,
                without N, will do.
            greedy: take the likeliest actions; otherwise draw them as in training, from torch's
                generator.

        Returns:
            Actions [N, *shape of one action], int64 [N] for discrete ones, as the environment
            takes them, on the agent's device; without N for one observation.
        """
        given = torch.as_tensor(obs)
        rank = len(self.obs_shape)
        kind = torch.uint8 if rank == 3 else torch.float32
        fits = given.shape[-rank:] == self.obs_shape and given.ndim in (rank, rank + 1)
        if given.dtype != kind or not fits:
            shape = ", ".join(map(str, self.obs_shape))
            raise ConfigError(
                f"obs is {_word(given.dtype)} {list(given.shape)}; "
                f"act takes {_word(kind)} [N, {shape}] or [{shape}]"
            )
        batch = given.to(self.device).view(-1, *self.obs_shape)
        drawn = (
            self.actions.likeliest(self.policy(batch)[0]) if greedy else self.policy.act(batch)[0]
        )
        return self.actions.clip(drawn).view((*given.shape[:-rank], *self.actions.shape))

    def require_pictures(self) -> None:
        """Raise ConfigError unless the run observes images and takes one of some actions."""
        single = isinstance(self.actions, Choices) and self.actions.single
        if len(self.obs_shape) != 3 or not single:
            seen = "images" if len(self.obs_shape) == 3 else "vectors"
            taken = "discrete" if single else "other"
            raise ConfigError(
                f"{self.config.out} observes {seen} and takes {taken} actions; "
                "`ssedb analyze` is for images and discrete actions"
            )

    def when(self) -> str:
        """Return, for an error's line, which agent was at work."""
        return f"under the agent of step {self.steps:,}"

    def make_env(self, num_envs: int = 1, *, seed: int = 1000, seed_key: int = 0) -> NoisyEnv:
        """Make the run's environment, noise included; each seed and key draws its own."""
        from ssedb.collect.environments import env_of

        env = env_of(dataclasses.replace(self.config, seed=seed), num_envs, seed_key, self.device)
        if (found := action_space(env.num_actions)) != self.actions:
            env.close()
            with checkpoint.must_fit(self.config.out):
                raise ValueError(f"{self.config.env} takes {found}, not {self.actions}")
        return env

    def make_bonus(self, fresh: bool = False) -> Bonus:
        """Make the run's bonus: trained, or fresh with the trained one's scale of observations."""
        bonus = make_bonus(
            self.config.bonus, self.obs_shape, self.num_actions, **self.config.bonus_options
        ).to(self.device)
        state, module = self.state["bonus"], bonus.normalize if fresh else bonus
        if fresh:
            state = {
                k.removeprefix("normalize."): v
                for k, v in state.items()
                if k.startswith("normalize.")
            }
        with checkpoint.must_fit(self.config.out):
            module.load_state_dict(state)
        return bonus


def load(run: Path | str, device: str = "auto") -> Agent:
    """Load the agent of a run's newest checkpoint; the device is auto, cpu, cuda or cuda:N."""
    run = Path(run)
    config = saved_config(run)
    require_checkpoint(run, config)
    tune_allocator()
    place = pick_device(device)

    def tell(text: str) -> None:
        print(literal(text), file=sys.stderr)

    # On the CPU: the optimizer and the memories need no place on a GPU.
    saved = checkpoint.load_latest(run / "checkpoints", "cpu", tell)
    assert saved is not None  # there is one, and one that cannot be read is an error
    state, about = saved
    require_own(run, about, config)
    # Small, and the probe compares its visit counts with states there.
    state["env"] = _moved(state["env"], place)
    return Agent(config, state, about["steps"], place)


def _word(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")


def _moved(state: Any, device: torch.device) -> Any:
    """Move the tensors of a nested dictionary to the device."""
    if isinstance(state, dict):
        return {name: _moved(value, device) for name, value in state.items()}
    return state.to(device) if isinstance(state, Tensor) else state
