"""Algorithm 1 in plain loops, an env that keeps what it showed, and a bonus computed by hand."""

import copy

import numpy as np
import pytest
import torch

from ssedb import ppo
from ssedb.bonuses.base import Bonus
from ssedb.trainer import Trainer
from tests.toy import SIDE, ToyEnv

ENVS, STEPS = 6, 9

UNUSUAL = dict(
    gamma=0.9, gae_lambda=0.7, clip=0.03, entropy_coef=0.2, learning_rate=2e-3,
    bonus_learning_rate=3e-3, adam_eps=1e-3, intrinsic_coef=0.5, extrinsic_coef=0.3, ppo_epochs=3,
    bonus_epochs=2, num_envs=ENVS, rollout_steps=STEPS, minibatch_envs=2,
    policy_channels=(4, 4, 4), policy_width=16,
)  # fmt: skip


class Snow(ToyEnv):
    """Every picture is new, rewards reach far beyond 1, and episodes end at different times.

    Keeps what it hands over.
    """

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
        """Return all observations, [T, N, 4, H, W]: an episode fills them with its first frame."""
        queue, found = torch.zeros(self.num_envs, 4, SIDE, SIDE, dtype=torch.uint8), []
        for frames, first in self.shown:
            queue = torch.cat([queue[:, 1:], frames[:, None]], 1)
            queue[first] = frames[first][:, None].expand(-1, 4, -1, -1)
            found.append(queue)
        return torch.stack(found)


def worth(obs, actions, next_obs):
    """Return what `Known` finds in a transition, [B], from the oldest frame, action and outcome."""
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

    def __init__(self, trainer: Trainer, env: Snow) -> None:
        self.trainer, self.env, self.config = trainer, env, trainer.config
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
        """Run one iteration of the trainer and check all its steps."""
        begin, row = len(self.env.answers), self.trainer.iterate()
        obs = self.env.stacks()[begin:]
        assert len(obs) == STEPS + 1
        actions, rewards, dones = map(
            torch.stack, zip(*self.env.answers[begin:], strict=True)
        )  # [T, N] each
        with torch.no_grad():
            logits, values = (torch.stack(x) for x in zip(*map(self.policy, obs), strict=True))
        old = logits[:-1].log_softmax(-1).gather(-1, actions[..., None])[..., 0]
        mixed = self.check_rewards(obs, actions, rewards.double().numpy(), row)
        advantages, returns = self.check_returns(mixed, values.double().numpy(), row)
        places = self.places(obs[:-1])
        self.check_policy_update(obs, actions, (old, advantages, returns), places, row)
        self.check_bonus_update(places, dones, row)
        self.batches.clear(), self.given.clear(), self.trainer.bonus.batches.clear()

    def check_rewards(self, obs, actions, extrinsic, row):
        """Return the rewards that PPO should get, [T, N]."""
        flat = obs[:-1].flatten(0, 1), actions.flatten(), obs[1:].flatten(0, 1)
        bonus = (self.weight * worth(*flat)).view(STEPS, ENVS).double().numpy()
        scales = {"run": self.scale, "recent": self.recent_scale, "none": lambda _: 1.0}
        scaled = bonus / scales[self.config.reward_scale](bonus)
        expected = {"bonus_raw": bonus.mean(), "bonus_raw_std": bonus.std(), "bonus": scaled.mean()}
        assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-4)
        clipped = np.clip(extrinsic, -1, 1)
        return self.config.intrinsic_coef * scaled + self.config.extrinsic_coef * clipped

    def check_returns(self, rewards, values, row):
        """Return the advantages that PPO should get, normalised, and the value targets, [T, N]."""
        advantages = plain_advantages(rewards, values, self.config.gamma, self.config.gae_lambda)
        returns = advantages + values[:-1]
        explained = 1 - advantages.var() / returns.var()
        assert row["explained_variance"] == pytest.approx(explained, rel=1e-4)
        return (advantages - advantages.mean()) / advantages.std(), returns

    def check_policy_update(self, obs, actions, expected, places, row) -> None:
        """Repeat PPO on the minibatches that the trainer drew, and compare the weights."""
        passes = self.passes(
            [[places[o.numpy().tobytes()] for o in batch] for batch in self.batches],
            self.config.ppo_epochs,
        )
        assert len({str(batches) for batches in passes}) > 1  # each pass has an order of its own
        inputs = [torch.from_numpy(np.asarray(x)).float() for x in expected]
        names, losses = ("old log-probs", "advantages", "returns"), []
        minibatches = [batch for batches in passes for batch in batches]
        for batch, given in zip(minibatches, self.given, strict=True):
            t, n = torch.tensor(batch).T
            assert torch.equal(given[0], actions[t, n])
            for name, found, wanted in zip(names, given[1:], inputs, strict=True):
                torch.testing.assert_close(
                    found, wanted[t, n], rtol=1e-4, atol=1e-5, msg=lambda m, x=name: f"{x}: {m}"
                )
            losses.append(self.update_policy(obs[t, n], actions[t, n], *(x[t, n] for x in inputs)))
        means = {name: np.mean([found[name] for found in losses]) for name in losses[0]}
        assert means["clip_fraction"] > 0
        assert {name: row[name] for name in means} == pytest.approx(means, rel=1e-3, abs=1e-5)
        both = zip(self.trainer.policy.parameters(), self.policy.parameters(), strict=True)
        for found, wanted in both:
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=2e-5)

    def scale(self, bonus) -> float:
        """The std of all discounted sums so far, this rollout's included."""
        for step in bonus:
            self.running = self.config.gamma * self.running + step
            self.filtered += self.running.tolist()
        return float(np.std(self.filtered))

    def recent_scale(self, bonus) -> float:
        """Return the root of a moving average of each rollout's variance of discounted sums.

        The mean of the first 50.
        """
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
        """Split minibatches into passes; each must see every whole trajectory once."""
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
            "policy_loss": -surrogate.item(),
            "value_loss": value_loss.item(),
            "entropy": entropy.item(),
            "clip_fraction": beyond,
        }

    def check_bonus_update(self, places, dones, row) -> None:
        """Repeat the bonus model's updates, and compare its weight."""
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
