"""A sound bonus, and for each check of the conformance kit one that breaks that check alone."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from ssedb.bonuses.base import Bonus, BonusOptions
from ssedb.objectives import masked_mean

SIDE = 44


class Sound(Bonus):
    """Distillation of a random linear map of the newest frame, with a running scale.

    The class uses every method of the contract.
    """

    fixed = ("target",)
    also: tuple[str, ...] = ()  # checks beside `breaks` that fail by necessity
    scale: Tensor

    def __init__(self, obs_shape: tuple[int, ...], num_actions: int, options: BonusOptions) -> None:
        super().__init__(obs_shape, num_actions)
        self.target = nn.Linear(SIDE, 4).requires_grad_(False)
        self.predictor = nn.Linear(SIDE, 4)
        self.register_buffer("scale", torch.tensor(1.0))

    def rows(self, obs: Tensor) -> Tensor:
        return self.normalize(obs)[:, -1].mean(1)  # [B, W]

    def errors(self, obs: Tensor) -> Tensor:
        rows = self.rows(obs)
        return (self.predictor(rows) - self.target(rows)).square().mean(-1)

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return self.errors(next_obs) / self.scale

    def loss(self, obs, actions, next_obs, mask=None):
        error = masked_mean(self.errors(next_obs), mask)
        return error, {"error": error.detach()}

    @torch.no_grad()
    def observe(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> None:
        self.scale.lerp_(self.errors(next_obs).mean(), 0.1)

    @torch.no_grad()
    def features(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.predictor(self.rows(obs))


class PaysDoubles(Sound):
    breaks = "reward_is_a_float_for_each_transition"

    def reward(self, obs, actions, next_obs):
        return super().reward(obs, actions, next_obs).double()


class LosesOneByOne(Sound):
    breaks = "loss_is_a_scalar_with_metrics"
    also = ("bonus_reaches_the_policy",)  # the trainer refuses it

    def loss(self, obs, actions, next_obs, mask=None):
        loss, metrics = super().loss(obs, actions, next_obs, mask)
        return loss[None], metrics


class LogsItsGraph(Sound):
    breaks = "loss_is_a_scalar_with_metrics"

    def loss(self, obs, actions, next_obs, mask=None):
        loss, _ = super().loss(obs, actions, next_obs, mask)
        return loss, {"error": loss}


class TurnsItsFeatures(Sound):
    breaks = "features_are_rows"

    def features(self, obs, actions):
        return super().features(obs, actions).T


class HidesATensor(Sound):
    breaks = "tensors_are_registered"

    def __init__(self, *args):
        super().__init__(*args)
        self.weights = [torch.ones(4)]


class TakesTheLogOfNothing(Sound):
    breaks = "reward_is_finite"

    def reward(self, obs, actions, next_obs):
        return super().reward(obs, actions, next_obs) + actions.log()  # -inf for action 0


class KeepsTheGraph(Sound):
    breaks = "reward_has_no_gradient"

    def reward(self, obs, actions, next_obs):
        return self.errors(next_obs) / self.scale


class Trembles(Sound):
    breaks = "reward_is_deterministic"
    calls = itertools.count()

    def reward(self, obs, actions, next_obs):
        return super().reward(obs, actions, next_obs) * (1 + 1e-5 * (next(self.calls) % 2))


class CountsItsCalls(Sound):
    breaks = "reward_changes_nothing"

    def __init__(self, *args):
        super().__init__(*args)
        self.register_buffer("calls", torch.zeros(()))

    def reward(self, obs, actions, next_obs):
        self.calls += 1
        return super().reward(obs, actions, next_obs)


class DrawsForNothing(Sound):
    breaks = "reward_changes_nothing"

    def reward(self, obs, actions, next_obs):
        torch.rand(1)
        return super().reward(obs, actions, next_obs)


class LooksAtRandom(Sound):
    breaks = "diagnostics_change_nothing"

    def diagnostics(self, obs, actions, next_obs):
        return {"one": self.rows(obs)[torch.randint(len(obs), ())].mean().detach()}


class Blackens(Sound):
    breaks = "arguments_are_left_alone"

    def reward(self, obs, actions, next_obs):
        obs.zero_()
        return super().reward(obs, actions, next_obs)


class SpoilsTheMask(Sound):
    breaks = "arguments_are_left_alone"
    also = ("masked_pairs_do_not_count", "bonus_reaches_the_policy")  # autograd keeps the mask

    def loss(self, obs, actions, next_obs, mask=None):
        loss = super().loss(obs, actions, next_obs, mask)
        if mask is not None:
            mask.fill_(True)
        return loss


class CountsItsLooks(CountsItsCalls):
    breaks = "diagnostics_change_nothing"

    def reward(self, obs, actions, next_obs):
        return Sound.reward(self, obs, actions, next_obs)

    def diagnostics(self, obs, actions, next_obs):
        self.calls += 1
        return {}


class LooksAtRows(Sound):
    breaks = "diagnostics_change_nothing"

    def diagnostics(self, obs, actions, next_obs):
        return {"rows": self.rows(obs).detach()}


class ClimbsInsteadOfDescending(Sound):
    breaks = "loss_decreases"

    def loss(self, obs, actions, next_obs, mask=None):
        loss, metrics = super().loss(obs, actions, next_obs, mask)
        return (
            2 * loss.detach() - loss,
            metrics,
        )  # the right value with the wrong sign of its gradient


class ForgetsToLearn(Sound):
    breaks = "loss_decreases"
    also = ("bonus_reaches_the_policy",)  # the trainer refuses it

    def loss(self, obs, actions, next_obs, mask=None):
        loss, metrics = super().loss(obs, actions, next_obs, mask)
        return loss.detach(), metrics


class StandsStill(Sound):
    breaks = "loss_decreases"

    def loss(self, obs, actions, next_obs, mask=None):
        loss, metrics = super().loss(obs, actions, next_obs, mask)
        return loss.detach() + 0 * loss, metrics


class TrainsItsTarget(Sound):
    breaks = "fixed_parts_stay"

    def __init__(self, *args):
        super().__init__(*args)
        self.target.requires_grad_(True)


class ForgetsItsScale(Sound):
    breaks = "saving_and_loading_keeps_the_rewards"
    seen = 0

    def observe(self, obs, actions, next_obs):
        self.seen += len(obs)

    def reward(self, obs, actions, next_obs):
        return super().reward(obs, actions, next_obs) / (1 + self.seen)


class ForgetsItsAge(Sound):
    """Rewards the same after loading, but not once it has gone on."""

    breaks = "saving_and_loading_keeps_the_rewards"
    age = 0

    def observe(self, obs, actions, next_obs):
        self.age += 1
        self.scale.fill_(self.age)


class IgnoresTheMask(Sound):
    breaks = "masked_pairs_do_not_count"

    def loss(self, obs, actions, next_obs, mask=None):
        return super().loss(obs, actions, next_obs)


class PaysByPosition(Sound):
    breaks = "order_does_not_matter"

    def reward(self, obs, actions, next_obs):
        return super().reward(obs, actions, next_obs).cumsum(0)


class PaysABitByPosition(Sound):
    """By less than a hundredth: rounding is far finer."""

    breaks = "order_does_not_matter"

    def reward(self, obs, actions, next_obs):
        return super().reward(obs, actions, next_obs) * (
            1 + 0.005 * torch.arange(len(obs)) / len(obs)
        )


class PaysABitByPositionNearNothing(Sound):
    """Rewards of about 1e-4, a few of them 1e-4 too high."""

    breaks = "order_does_not_matter"

    def reward(self, obs, actions, next_obs):
        return 1e-4 * (super().reward(obs, actions, next_obs).tanh() + (torch.arange(len(obs)) < 3))


class StandardisesByTheBatch(Sound):
    breaks = "single_transition"

    def reward(self, obs, actions, next_obs):
        reward = super().reward(obs, actions, next_obs)
        return (reward - reward.mean()) / reward.std()


class HasRoomForAThousand(Sound):
    breaks = "huge_batch"

    def reward(self, obs, actions, next_obs):
        reward = super().reward(obs, actions, next_obs)
        scratch = torch.zeros(1000)
        scratch[: len(reward)] = reward
        return scratch[: len(reward)]


class TakesFloatsForScaled(Sound):
    breaks = "bytes_and_floats_agree"

    def reward(self, obs, actions, next_obs):
        frames = next_obs if next_obs.dtype == torch.uint8 else next_obs * 255
        return super().reward(obs, actions, frames)


class PaysNoNumberForVectors(Sound):
    breaks = "vectors_are_rewarded_too"

    def rows(self, obs):
        if obs.ndim == 4:
            return super().rows(obs)
        return torch.full((len(obs), SIDE), torch.nan)


class PaysAColumnForVectors(Sound):
    breaks = "vectors_are_rewarded_too"

    def errors(self, obs):
        return super().errors(obs) if obs.ndim == 4 else obs.square().mean(-1, keepdim=True)


class PaysDoublesForVectors(Sound):
    breaks = "vectors_are_rewarded_too"

    def errors(self, obs):
        return super().errors(obs) if obs.ndim == 4 else obs.square().mean(-1)

    def reward(self, obs, actions, next_obs):
        reward = super().reward(obs, actions, next_obs)
        return reward if obs.ndim == 4 else reward.double()


class PaysNothing(Sound):
    breaks = "bonus_reaches_the_policy"

    def reward(self, obs, actions, next_obs):
        return 0 * super().reward(obs, actions, next_obs)


BROKEN = [cls for cls in Sound.__subclasses__() if "breaks" in vars(cls)]
