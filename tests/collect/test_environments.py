"""The environments that settings name, and a random agent's statistics of them."""

import numpy as np
import pytest
import torch
from scipy.stats import chi2

from ssedb.collect.environments import random_agent_statistics, training_envs
from ssedb.engine.distributed import Group
from ssedb.trainer import Trainer
from tests.toy import Grid, tiny_config


def test_random_agent_statistics_are_a_mean_picture_and_the_mean_of_stds():
    class Tape(Grid):
        """Keeps every frame it shows."""

        def frames(self):
            shown = super().frames()
            self.tape.append(shown)
            return shown

    env = Tape(num_envs=4, episode=1000)
    env.tape = []
    mean, std = random_agent_statistics(env, 200, seed=0)
    frames = torch.stack(env.tape).double()  # [51, 4, H, W]; no episode ended
    stacks = torch.stack(
        [frames[[max(t - 3 + k, 0) for k in range(4)]] for t in range(50)]
    )  # [50, 4 frames, N, H, W]
    samples = stacks.transpose(1, 2).flatten(0, 1)
    torch.testing.assert_close(mean.double(), samples.mean(0), rtol=1e-5, atol=1e-5)
    expected = samples.std(0, correction=0).mean()
    assert std.item() == np.float32(expected.item())


def test_random_agent_statistics_of_a_constant_world_have_a_std_of_a_thousandth():
    class Still(Grid):
        def frames(self):
            return torch.full((self.num_envs, 36, 36), 7, dtype=torch.uint8)

    mean, std = random_agent_statistics(Still(num_envs=2), 20, seed=0)
    assert (mean == 7).all()
    assert std.item() == pytest.approx(1e-3)


@pytest.mark.parametrize("collect", ["random agent", "trainer"])
def test_first_episodes_are_staggered(collect):
    class Watched(Grid):
        staggered = 0

        def stagger(self):
            self.staggered += 1

    env = Watched(num_envs=8)
    if collect == "trainer":
        Trainer(tiny_config("unused"), env)
    else:
        random_agent_statistics(env, 16, seed=0)
    assert env.staggered == 1


@pytest.mark.parametrize("seed", range(3))
def test_random_agent_takes_every_action_equally_often_in_every_environment(seed):
    class Recorder(Grid):
        def act(self, actions):
            taken.append(actions)
            return super().act(actions)

    taken = []
    random_agent_statistics(Recorder(num_envs=4, seed=seed), 4 * 1000, seed)
    actions = torch.stack(taken)  # [1000, 4]
    counts = torch.stack(
        [(actions == action).sum(0) for action in range(4)]
    ).double()  # [actions, envs]
    # Chance exceeds the bound of a chi-square with 4 times 3 degrees of freedom once in a million.
    assert ((counts - 250).square() / 250).sum() < chi2.isf(1e-6, 12)
    assert (actions[:, 0] != actions[:, 1]).any()


def test_processes_train_in_environments_of_other_seeds():
    config = tiny_config("unused", env="rooms-small", noise="pixel", num_envs=4, minibatch_envs=2)
    first = []
    for group in (Group(), Group(0, 2), Group(1, 2)):
        (env,) = training_envs(config, 0, torch.device("cpu"), group)
        assert env.num_envs == 4 // group.size
        first.append(env.reset())
    assert not torch.equal(first[1], first[2])
