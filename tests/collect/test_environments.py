"""The environments that settings name, and a random agent's statistics of them."""

import gymnasium
import numpy as np
import pytest
import torch
from scipy.stats import chi2

import ssedb
from ssedb.collect import environments
from ssedb.collect.environments import look_around, random_agent_statistics, training_envs
from ssedb.engine.distributed import Group
from ssedb.errors import TrainingError
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


def test_random_agent_of_another_seed_acts_otherwise():
    means = [random_agent_statistics(Grid(4), 200, seed)[0] for seed in (0, 1, 0)]
    assert not torch.equal(means[0], means[1])
    assert torch.equal(means[0], means[2])


def test_processes_train_in_environments_of_other_seeds():
    config = tiny_config("unused", env="rooms-small", noise="pixel", num_envs=4, minibatch_envs=2)
    first = []
    for group in (Group(), Group(0, 2), Group(1, 2)):
        (env,) = training_envs(config, 0, torch.device("cpu"), group)
        assert env.num_envs == 4 // group.size
        first.append(env.reset())
    assert not torch.equal(first[1], first[2])


def frames_of(**settings):
    """What the environments of a trainer show in one rollout, [T + 4, N, H, W]."""
    sizes = dict(num_envs=4, minibatch_envs=2, rollout_steps=6, bonus="none", bonus_options={})
    trainer = Trainer(tiny_config("unused", **{**sizes, **settings}))
    trainer.iterate()
    trainer.close()
    return trainer.rollout.frames.int()


@pytest.mark.parametrize("noise", ["random-box", "pixel"])
def test_strength_is_the_noise_that_frames_show(noise):
    clean = frames_of(env="rooms-small")
    off = [
        (frames_of(env="rooms-small", noise=noise, noise_strength=s) - clean)[3:]
        for s in (0.0, 0.1, 0.4)
    ]
    spread = [x.float().std().item() for x in off]
    assert spread[0] == 0
    assert 0 < 2 * spread[1] < spread[2]


def test_seed_when_another_shows_other_frames():
    first = [frames_of(env="rooms-small", noise="random-box", seed=seed)[3] for seed in (0, 1, 0)]
    assert not torch.equal(first[0], first[1])
    assert torch.equal(first[0], first[2])


def test_pools_of_emulators_differ(monkeypatch):
    """With one seed for all, the four pools would show the same noise on the same first frame."""
    made = []
    monkeypatch.setattr(environments, "make_env", lambda *x, **settings: made.append(settings))
    config = tiny_config("unused", env="breakout", num_envs=8)
    training_envs(config, 0, torch.device("cuda"))
    assert len({settings["seed"] for settings in made}) == 4


def test_random_agent_looks_at_other_episodes_than_those_of_training(monkeypatch):
    seeds, sizes, make = [], [], environments.make_env

    def spy(name, num_envs, *, seed, **settings):
        seeds.append(seed)
        sizes.append(num_envs)
        return make(name, num_envs, seed=seed, **settings)

    monkeypatch.setattr(environments, "make_env", spy)
    config = tiny_config("unused", obs_norm_steps=8, num_envs=12)
    look_around(config)
    training_envs(config, 0, torch.device("cpu"))
    assert len(set(seeds)) == len(seeds) == 2
    assert sizes == [8, 12]


def test_obs_statistics_are_those_of_the_noisy_world_and_reach_policy_and_bonus():
    settings = dict(noise="pixel", noise_strength=0.5)
    noisy = tiny_config("unused", env="rooms-small", obs_norm_steps=400, **settings)
    trainer = Trainer(noisy)
    trainer.fit_observations(look_around(noisy))
    clean = tiny_config("unused", env="rooms-small", obs_norm_steps=400)
    without = Trainer(clean)
    without.fit_observations(look_around(clean))
    env = ssedb.make_env("rooms-small", 8, noise="pixel", strength=0.5, seed=5)
    env.reset()
    actions = torch.randint(5, (60, 8), generator=torch.Generator().manual_seed(0))
    seen = torch.stack([env.step(a).frames for a in actions]).double().flatten(0, 1)  # [480, H, W]
    expected = seen.std(0, correction=0).mean()
    for module in (trainer.policy, trainer.bonus):
        assert module.normalize.std.item() == pytest.approx(expected.item(), rel=0.05)
        assert (module.normalize.mean[0, -1] - seen.mean(0)).abs().mean() < 4
    for module in (without.policy, without.bonus):
        assert module.normalize.std < 0.5 * expected  # without noise the spread is another


class Leaking(gymnasium.Env):
    """A vector whose second number, of float64, is no finite float32 from some step on."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, value):
        self.value = float(value)

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return np.zeros(2), {}

    def step(self, action):
        self.steps += 1
        return np.array([0, self.value if self.steps > 5 else 1]), 0.0, False, False, {}


gymnasium.register("Leaking-v0", Leaking)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("value", "shown"), [("nan", "nan"), ("-inf", "-inf"), ("1e39", "inf")])
def test_run_of_an_environment_that_shows_a_random_agent_no_number_saves_nothing(
    value, shown, tmp_path
):
    config = tiny_config(
        tmp_path / "run", env=f"{__name__}:Leaking-v0", env_kwargs={"value": value}, env_workers=0
    )
    with pytest.raises(TrainingError, match=f"Leaking-v0 gave .* observation with {shown}, no"):
        ssedb.train(config)
    assert not list(tmp_path.glob("run/checkpoints/*"))
