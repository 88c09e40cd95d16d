"""How the trainer puts its parts together: Algorithm 1 once more in plain loops, and every setting seen to matter."""

import copy
import dataclasses

import gymnasium
import numpy as np
import pytest
import torch

import ssedb
from ssedb import ppo
from ssedb.bonuses.base import Bonus
from ssedb.collect import environments
from ssedb.collect.environments import look_around, training_envs
from ssedb.config import TrainConfig
from ssedb.trainer import Trainer
from tests.toy import SIDE, ToyEnv, tiny_config

ENVS, STEPS = 6, 9
UNUSUAL = dict(
    gamma=0.9, gae_lambda=0.7, clip=0.03, entropy_coef=0.2, learning_rate=2e-3,
    bonus_learning_rate=3e-3, adam_eps=1e-3, intrinsic_coef=0.5,
    extrinsic_coef=0.3, ppo_epochs=3, bonus_epochs=2, num_envs=ENVS, rollout_steps=STEPS, minibatch_envs=2,
    policy_channels=(4, 4, 4), policy_width=16,
)  # fmt: skip


class Snow(ToyEnv):
    """Every picture is new, rewards reach far beyond 1, and episodes end at different times. Keeps what it hands over."""

    num_actions = 3

    def __init__(self, num_envs: int = ENVS, seed: int = 0, restorable: bool = True) -> None:
        super().__init__(num_envs, seed, episode=torch.arange(num_envs) % 5 + 4)
        self.shown, self.answers, self.can_restore = [], [], restorable

    @property
    def restorable(self) -> bool:
        return self.can_restore

    def draw(self):
        return torch.randint(0, 256, (self.num_envs, SIDE, SIDE), generator=self.generator).to(
            torch.uint8
        )

    def frames(self):
        return self.state.clone()

    def act(self, actions):
        self.state = self.draw() // torch.randint(
            1, 9, (self.num_envs, 1, 1), generator=self.generator
        ).to(torch.uint8)
        return 3 * torch.randn(self.num_envs, generator=self.generator)

    def reset(self):
        self.shown.append((super().reset(), torch.ones(self.num_envs, dtype=torch.bool)))
        return self.shown[-1][0]

    def step(self, actions):
        step = super().step(actions)
        self.shown.append((step.frames, step.dones))
        self.answers.append((actions.clone(), step.rewards, step.dones))
        return step

    def stacks(self):
        """Every observation so far, [T, N, 4, H, W]: queues that an episode fills with its first frame."""
        queue, found = torch.zeros(self.num_envs, 4, SIDE, SIDE, dtype=torch.uint8), []
        for frames, first in self.shown:
            queue = torch.cat([queue[:, 1:], frames[:, None]], 1)
            queue[first] = frames[first][:, None].expand(-1, 4, -1, -1)
            found.append(queue)
        return torch.stack(found)


def worth(obs, actions, next_obs):
    """What `Known` finds in a transition, [B]; it needs the oldest frame, the action and what came of it."""
    old, new = obs[:, 0].double().mean((1, 2)), next_obs[:, -1].double().mean((1, 2))
    return ((1 + actions) * (old - new).abs() / 50).float()


class Known(Bonus):
    """A bonus that can be computed by hand, with one weight that learns."""

    def __init__(self, obs_shape, num_actions, options):
        super().__init__(obs_shape, num_actions)
        self.weight = torch.nn.Parameter(torch.tensor(1.0))
        self.batches = []

    def reward(self, obs, actions, next_obs):
        return self.weight.detach() * worth(obs, actions, next_obs)

    def loss(self, obs, actions, next_obs, mask=None):
        self.batches.append((obs, actions, next_obs, mask))
        counted = torch.ones(len(obs), dtype=torch.bool) if mask is None else mask
        return self.weight * worth(obs, actions, next_obs)[counted].mean(), {}


class PlainAdam:
    """Adam, written down from its paper."""

    def __init__(self, weights, rate, eps):
        self.weights, self.rate, self.eps, self.steps = weights, rate, eps, 0
        self.first, self.second = ([torch.zeros_like(w) for w in weights] for _ in range(2))

    @torch.no_grad()
    def step(self, gradients):
        self.steps += 1
        for w, g, m, v in zip(self.weights, gradients, self.first, self.second, strict=True):
            m.copy_(0.9 * m + 0.1 * g)
            v.copy_(0.999 * v + 0.001 * g**2)
            w -= (
                self.rate
                * (m / (1 - 0.9**self.steps))
                / ((v / (1 - 0.999**self.steps)).sqrt() + self.eps)
            )


def plain_advantages(rewards, values, gamma, gae_lambda):
    """Lambda-weighted sums of the n-step advantages; episode ends are not looked at."""
    advantages = np.zeros_like(rewards)
    for n in range(rewards.shape[1]):
        after = 0.0
        for t in reversed(range(len(rewards))):
            error = rewards[t, n] + gamma * values[t + 1, n] - values[t, n]
            after = error + gamma * gae_lambda * after
            advantages[t, n] = after
    return advantages


def plain_surrogate(logits, actions, old, advantages, clip):
    """PPO's objective of a minibatch, sample by sample; the share beyond the clip comes along."""
    total, beyond, log_probs = 0.0, 0, logits.log_softmax(-1)
    for row, action, before, advantage in zip(log_probs, actions, old, advantages, strict=True):
        ratio = (row[action] - before).exp()
        kept = min(max(ratio, torch.tensor(1 - clip)), torch.tensor(1 + clip))
        total = total + min(ratio * advantage, kept * advantage)
        beyond += abs(ratio.item() - 1) > clip
    return total / len(actions), beyond / len(actions)


class PlainRun:
    """What `Trainer` should compute, from what its environment showed and answered."""

    def __init__(self, trainer: Trainer, world: Snow, monkeypatch) -> None:
        self.trainer, self.world, self.config = trainer, world, trainer.config
        self.policy, self.weight = copy.deepcopy(trainer.policy), torch.tensor(1.0)
        eps = self.config.adam_eps
        self.adam = PlainAdam(list(self.policy.parameters()), self.config.learning_rate, eps)
        self.bonus_adam = PlainAdam([self.weight], self.config.bonus_learning_rate, eps)
        self.running, self.filtered = np.zeros(ENVS), []
        self.batches, self.given, loss = [], [], ppo.ppo_loss

        def keep(module, args):
            if torch.is_grad_enabled():
                self.batches.append(args[0])

        def spy(*args, **settings):
            self.given.append(args[2:])  # actions, old log-probabilities, advantages, returns
            return loss(*args, **settings)

        trainer.policy.register_forward_pre_hook(keep)
        trainer.ppo_loss = spy

    def iterate(self) -> None:
        """One iteration of the trainer, checked step by step."""
        begin, config, row = len(self.world.answers), self.config, self.trainer.iterate()
        obs = self.world.stacks()[begin:]
        assert len(obs) == STEPS + 1
        actions, rewards, dones = (
            torch.stack(x) for x in zip(*self.world.answers[begin:], strict=True)
        )
        with torch.no_grad():
            logits, values = (torch.stack(x) for x in zip(*map(self.policy, obs), strict=True))
        old = logits[:-1].log_softmax(-1).gather(-1, actions[..., None])[..., 0]

        flat = obs[:-1].flatten(0, 1), actions.flatten(), obs[1:].flatten(0, 1)
        bonus = (self.weight * worth(*flat)).view(STEPS, ENVS).double().numpy()
        paid = bonus / {"run": self.scale, "recent": self.recent_scale, "none": lambda _: 1.0}[
            config.reward_scale
        ](bonus)
        mixed = config.intrinsic_coef * paid + config.extrinsic_coef * np.clip(
            rewards.double().numpy(), -1, 1
        )
        advantages = plain_advantages(
            mixed, values.double().numpy(), config.gamma, config.gae_lambda
        )
        returns = advantages + values[:-1].double().numpy()
        left = returns - values[:-1].numpy()
        figures = {
            "bonus_raw": bonus.mean(), "bonus_raw_std": bonus.std(), "bonus": paid.mean(),
            "explained_variance": 1 - left.var() / returns.var(),
        }  # fmt: skip
        assert {name: row[name] for name in figures} == pytest.approx(figures, rel=1e-4)

        standard = (advantages - advantages.mean()) / advantages.std()
        places = self.places(obs[:-1])
        passes = self.passes(
            [[places[o.numpy().tobytes()] for o in batch] for batch in self.batches],
            config.ppo_epochs,
        )
        assert len({str(batches) for batches in passes}) > 1  # each pass has an order of its own
        inputs = [torch.from_numpy(np.asarray(x)).float() for x in (old, standard, returns)]
        totals, losses = (
            dict.fromkeys(("policy_loss", "value_loss", "entropy", "clip_fraction"), 0.0),
            [],
        )
        for batch, given in zip(
            [b for batches in passes for b in batches], self.given, strict=True
        ):
            t, n = torch.tensor(batch).T
            assert torch.equal(given[0], actions[t, n])
            for name, actual, expected in zip(
                ("old log-probs", "advantages", "returns"), given[1:], inputs, strict=True
            ):
                torch.testing.assert_close(
                    actual, expected[t, n], rtol=1e-4, atol=1e-5, msg=lambda m, x=name: f"{x}: {m}"
                )
            losses.append(self.update_policy(obs[t, n], actions[t, n], *(x[t, n] for x in inputs)))
        for found in losses:
            totals = {name: totals[name] + found[name] / len(losses) for name in totals}
        assert totals["clip_fraction"] > 0
        assert {name: row[name] for name in totals} == pytest.approx(totals, rel=1e-3, abs=1e-5)
        for actual, expected in zip(
            self.trainer.policy.parameters(), self.policy.parameters(), strict=True
        ):
            torch.testing.assert_close(actual, expected, rtol=1e-3, atol=2e-5)
        self.update_bonus(places, dones, row)
        self.batches.clear(), self.given.clear(), self.trainer.bonus.batches.clear()

    def scale(self, bonus) -> float:
        """The std of all discounted sums so far, this rollout's included."""
        for step in bonus:
            self.running = self.config.gamma * self.running + step
            self.filtered += self.running.tolist()
        return float(np.std(self.filtered))

    def recent_scale(self, bonus) -> float:
        """The root of a moving average of each rollout's variance of discounted sums: the mean of the first 50."""
        sums = []
        for step in bonus:
            self.running = self.config.gamma * self.running + step
            sums += self.running.tolist()
        self.filtered.append(np.var(sums))
        return float(np.mean(self.filtered)) ** 0.5

    def places(self, obs):
        """Where each observation belongs, (t, env)."""
        places = {obs[t, n].numpy().tobytes(): (t, n) for t in range(STEPS) for n in range(ENVS)}
        assert len(places) == STEPS * ENVS
        return places

    def passes(self, batches, epochs):
        """Splits minibatches into passes; each must see every environment once, with its whole trajectory."""
        size = ENVS // self.config.minibatch_envs
        assert len(batches) == epochs * size
        passes = [batches[i : i + size] for i in range(0, len(batches), size)]
        for minibatches in passes:
            assert sorted(place for batch in minibatches for place in batch) == [
                *np.ndindex(STEPS, ENVS)
            ]
            assert all(
                len({n for _, n in batch}) == self.config.minibatch_envs for batch in minibatches
            )
        return passes

    def update_policy(self, obs, actions, old, advantages, returns):
        logits, values = self.policy(obs)
        surrogate, beyond = plain_surrogate(logits, actions, old, advantages, self.config.clip)
        entropy = -(logits.softmax(-1) * logits.log_softmax(-1)).sum() / len(obs)
        value_loss = ((values - returns) ** 2).sum() / len(obs) / 2
        loss = -surrogate + value_loss - self.config.entropy_coef * entropy
        self.adam.step(torch.autograd.grad(loss, self.adam.weights))
        return {
            "policy_loss": -surrogate.item(), "value_loss": value_loss.item(), "entropy": entropy.item(),
            "clip_fraction": beyond,
        }  # fmt: skip

    def update_bonus(self, places, dones, row) -> None:
        batches, losses = self.trainer.bonus.batches, []
        self.passes(
            [[places[o.numpy().tobytes()] for o in batch[0]] for batch in batches],
            self.config.bonus_epochs,
        )
        for obs, actions, next_obs, mask in batches:
            t, n = torch.tensor([places[o.numpy().tobytes()] for o in obs]).T
            ended = dones[t, n]
            assert 0 < ended.sum() < len(ended)
            assert mask is None or torch.equal(mask, ~ended)
            assert (mask is not None) == self.config.mask_boundaries
            slope = worth(obs, actions, next_obs)[
                ~ended if self.config.mask_boundaries else slice(None)
            ].mean()
            losses.append(float(self.weight * slope))
            self.bonus_adam.step([slope])
        assert row["bonus_loss"] == pytest.approx(np.mean(losses), rel=1e-4)
        torch.testing.assert_close(self.trainer.bonus.weight.detach(), self.weight)
        assert abs(float(self.weight) - 1) > 1e-3


@pytest.mark.parametrize("scale", ["run", "recent", "none"])
def test_iterations_match_plain_loops(tmp_path, monkeypatch, scale):
    settings = dict(
        bonus=f"{__name__}:Known",
        bonus_options={},
        reward_scale=scale,
        mask_boundaries=scale == "run",
    )
    world = Snow()
    trainer = Trainer(tiny_config(tmp_path, **UNUSUAL, **settings), world)
    run = PlainRun(trainer, world, monkeypatch)
    for _ in range(3):
        run.iterate()


class Dial(gymnasium.Env):
    """One gray, lighter at every step by as much as it is told."""

    observation_space = gymnasium.spaces.Box(0, 255, (84, 84), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, by: int = 3) -> None:
        self.by = by

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.gray = int(self.np_random.integers(100))
        return np.full((84, 84), self.gray, np.uint8), {}

    def step(self, action):
        self.gray += self.by
        return np.full((84, 84), self.gray, np.uint8), 0.0, self.gray > 200, False, {}


gymnasium.register("Dial-v0", entry_point=f"{__name__}:Dial")


def outcome(toy: bool = True, **settings):
    """All that comes out of two iterations: metrics, weights, frames."""
    config = tiny_config(**{"out": "unused", **UNUSUAL, "obs_norm_steps": 64, **settings})
    trainer = Trainer(config, Snow(config.num_envs) if toy else None)
    if not toy:
        trainer.fit_observations(look_around(config))
    rows = [trainer.iterate() for _ in range(2)]
    trainer.close()
    for row in rows:
        del row["sps"]
    weights = {
        **trainer.policy.state_dict(),
        **{f"bonus.{k}": v for k, v in trainer.bonus.state_dict().items()},
    }
    return (
        rows,
        [value.numpy().tobytes() for value in weights.values()],
        trainer.rollout.frames.numpy().tobytes(),
    )


TOY: dict = {}
ROOMS = dict(
    toy=False,
    env="rooms-small",
    bonus="rnd",
    bonus_options={"feature_dim": 8},
    ppo_epochs=1,
    bonus_epochs=1,
)
DIAL = {**ROOMS, "env": f"{__name__}:Dial-v0"}
ATARI = {**ROOMS, "env": "breakout", "num_envs": 2, "extrinsic_coef": 0.0}

# Every setting with a world in which it shows, and another value for it.
MATTERS = {
    "env": (ROOMS, "rooms-small@1"),
    "env_kwargs": (DIAL, {"by": 7}),
    "noise": (ROOMS, "random-box"),
    "noise_strength": ({**ROOMS, "noise": "random-box"}, 0.5),
    "box_noise": ({**ROOMS, "noise": "random-box"}, "wrap"),
    "pixel_noise": ({**ROOMS, "noise": "pixel"}, "zeros"),
    "max_episode_steps": (ROOMS, 5),
    "obs_norm_steps": (ROOMS, 128),
    "sticky": ({**ATARI, "noise": "sticky"}, "frame"),
    "noop_max": (ATARI, 0),
    "bonus": ({**TOY, "bonus_options": {}}, "icm"),
    "bonus_options": (TOY, {"tau": 0.5}),
    "preset": (TOY, "rooms"),
    "fidelity": (TOY, "released"),
    "seed": (TOY, 1),
    "num_envs": (TOY, 8),
    "rollout_steps": (TOY, 8),
    "minibatch_envs": (TOY, 3),
    "ppo_epochs": (TOY, 2),
    "bonus_epochs": (TOY, 1),
    "learning_rate": (TOY, 1e-3),
    "adam_eps": (TOY, 1e-4),
    "gamma": (TOY, 0.8),
    "gae_lambda": (TOY, 0.8),
    "clip": (TOY, 0.02),
    "entropy_coef": (TOY, 0.1),
    "intrinsic_coef": (TOY, 0.6),
    "extrinsic_coef": (TOY, 0.4),
    "reward_scale": (TOY, "recent"),
    "bonus_learning_rate": (TOY, 1e-3),
    "mask_boundaries": (TOY, False),
    "policy_channels": (TOY, (4, 4, 8)),
    "policy_width": (TOY, 8),
    "policy_layers": (TOY, ("linear", "relu")),
}
DOES_NOT = {
    "env_workers": 2,
    "threads": 3,
    "steps": 7,
    "out": "elsewhere",
    "engine": "eager",
    "precision": "fp32",
    "deterministic": True,
    "checkpoint_minutes": 1.0,
    "wandb": True,
}


@pytest.fixture(scope="module")
def usual():
    """The outcome without a change, computed once for each world."""
    known: dict = {}

    def find(base):
        if (key := repr(base)) not in known:
            known[key] = outcome(**base)
        return known[key]

    return find


def test_settings_are_all_declared():
    names = {field.name for field in dataclasses.fields(TrainConfig)}
    assert names == {*MATTERS, *DOES_NOT, "device"}


@pytest.mark.parametrize("name", MATTERS)
def test_setting_of_the_algorithm_changes_the_result(usual, name):
    base, value = MATTERS[name]
    same = outcome(**{**base, name: value}) == usual(base)
    assert not same, f"{name}={value} comes to the same"


@pytest.mark.parametrize("name", DOES_NOT)
def test_setting_of_the_run_changes_no_result(usual, name):
    base = DIAL if name == "env_workers" else TOY
    same = outcome(**{**base, name: DOES_NOT[name]}) == usual(base)
    assert same, f"{name}={DOES_NOT[name]} makes a difference"


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


def test_scores_of_episodes_cut_off_by_a_resume_are_forgotten(tmp_path):
    trainer = Trainer(tiny_config(tmp_path, **UNUSUAL), Snow(restorable=False))
    before = trainer.iterate()
    world = Snow(seed=1, restorable=False)
    again = Trainer(tiny_config(tmp_path, **UNUSUAL), world)
    again.load_state_dict(copy.deepcopy(trainer.state_dict()))
    row, ended, running = again.iterate(), [], torch.zeros(ENVS)
    for _, rewards, dones in world.answers:
        running += rewards
        ended += running[dones].tolist()
        running[dones] = 0
    assert row["score_rollout"] == pytest.approx(np.mean(ended), rel=1e-5)
    assert row["episodes"] == before["episodes"] + len(ended)
