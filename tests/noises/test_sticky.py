"""Sticky actions: how often, what is repeated, and never across an end."""

import numpy as np
import torch

from ssedb.envs.noisy import NoisyEnv
from ssedb.noises.sticky import Sticky
from tests.noises.draws import generator
from tests.toy import Grid


def stick(strength: float, before: int):
    actions = torch.ones(40_000, dtype=torch.int64)
    memory = {"previous": torch.full((40_000,), before)}
    return Sticky(strength).disturb_actions(actions, memory, generator())


def test_sticky_at_strength_1_repeats_a_quarter_of_the_actions():
    executed, stuck = stick(1.0, before=7)
    assert torch.equal(executed, torch.where(stuck, 7, 1))
    assert abs(stuck.float().mean().item() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 40_000)


def test_sticky_without_a_previous_action_or_strength_repeats_nothing():
    assert not stick(1.0, before=-1)[1].any()
    assert not stick(0.0, before=7)[1].any()


class Recorder(Grid):
    """Writes down the actions that it executes."""

    def __init__(self) -> None:
        super().__init__(num_envs=64, episode=5)
        self.executed: list[torch.Tensor] = []

    def act(self, actions):
        self.executed.append(actions.clone())
        return super().act(actions)


def test_sticky_env_repeats_the_executed_action_and_never_across_an_end():
    source = Recorder()
    env = NoisyEnv(source, Sticky(), seed=3)
    env.reset()
    chosen = [torch.full((64,), t % 4) for t in range(50)]
    for actions in chosen:
        env.step(actions)
    stuck = torch.stack([e != c for e, c in zip(source.executed, chosen, strict=True)])
    assert not stuck[::5].any()  # the first step of each episode has nothing to repeat
    inside = stuck[[t for t in range(50) if t % 5]].float()
    assert abs(inside.mean().item() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / inside.numel())
    repeated = torch.stack(source.executed)
    for t in (t for t in range(50) if t % 5):
        assert torch.equal(repeated[t][stuck[t]], repeated[t - 1][stuck[t]])
