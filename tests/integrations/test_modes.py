"""Rewards within the modes of torch that a caller has switched on."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch

import ssedb
from ssedb.integrations import rlexplore
from ssedb.integrations.stepwise import Stepwise

from .corridor import SPACES, rollout, small, weights


@contextmanager
def double() -> Iterator[None]:
    """New tensors are float64."""
    torch.set_default_dtype(torch.float64)
    yield
    assert torch.get_default_dtype() == torch.float64
    torch.set_default_dtype(torch.float32)


MODES = [
    torch.no_grad,
    torch.inference_mode,
    partial(torch.autocast, "cpu", torch.bfloat16),
    double,
]
ELSEWHERE = partial(torch.device, "meta")  # new tensors are on another device, such as "cuda"


def two_rollouts(bonus: str) -> tuple[list[torch.Tensor], torch.Tensor]:
    """What a reward that is made here gives, and the weights that it ends with."""
    reward = small(bonus, epochs=1)
    rewards = [reward.compute(rollout())]
    state = reward.state_dict()
    for t in range(8):
        reward.watch(**{name: value[t] for name, value in rollout(seed=1).items()})
        reward.begin_episodes([False, t == 3, False])
    rewards.append(reward.compute())
    reward.load_state_dict(state)
    rewards.append(reward.compute(rollout(seed=2)))
    return rewards, weights(reward)


@pytest.mark.parametrize("mode", [*MODES, ELSEWHERE])
@pytest.mark.parametrize("bonus", [b for b in ssedb.list_bonuses() if b != "none"])
def test_reward_within_a_mode_equals_the_reward_without(bonus, mode):
    rewards, learned = two_rollouts(bonus)
    with mode():
        found, also_learned = two_rollouts(bonus)
        for own, expected in zip(found, rewards, strict=True):
            assert torch.equal(own, expected)
    assert torch.equal(also_learned, learned)


@pytest.mark.parametrize("mode", MODES)
def test_samples_and_rewards_made_in_different_modes_go_together(mode):
    reward, other = small("db"), small("db")
    with mode():
        samples = {name: torch.as_tensor(value) + 0 for name, value in rollout().items()}
        found = [reward.compute(samples)]
    found.append(reward.compute(samples))
    for rewards in found:
        assert torch.equal(rewards, other.compute(rollout()))
    assert torch.equal(weights(reward), weights(other))


@pytest.mark.parametrize("mode", [*MODES, ELSEWHERE])
def test_steps_and_rlexplores_calls_train_within_a_mode(mode):
    samples = {name: torch.as_tensor(value) for name, value in rollout().items()}
    names = ("observations", "actions", "terminateds", "next_observations")

    def train() -> list[torch.Tensor]:
        step, theirs = Stepwise(small("rnd"), 2), rlexplore.ICM(SPACES, latent_dim=8)
        step.begin_episodes()
        for t in range(8):
            step(*(samples[name][t] for name in names))
        theirs.compute(samples)
        theirs.update(samples)
        return [weights(step.reward), weights(theirs.reward)]

    expected = train()
    with mode():
        found = train()
    assert all(map(torch.equal, found, expected))
