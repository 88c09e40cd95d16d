"""Learning Progress Monitoring: rewards the progress of a forward model in one iteration."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from ssedb.actions import NumActions
from ssedb.bonuses.base import Encoded, FeatureOptions
from ssedb.networks import ForwardModels, dense_layers, glorot
from ssedb.objectives import masked_mean


class LearningProgress(Encoded):
    """Reward for the progress of a forward model over fixed random features (LPM).

    g(s, a) - log e(s, a, s'), e the forward model's error and g the expected log error of the model
    one iteration before. Until g has been trained on one rollout the reward is 0.
    """

    fixed = ("encoder", "previous")
    iterations: Tensor

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: FeatureOptions
    ) -> None:
        super().__init__(obs_shape, num_actions, options)
        self.encoder.requires_grad_(False)
        dim = options.feature_dim
        self.forward_model = ForwardModels(1, dim, num_actions)
        self.previous = copy.deepcopy(self.forward_model).requires_grad_(False)
        hidden = dense_layers((dim + self.actions.width, dim, dim))
        self.error_model = nn.Sequential(*hidden, glorot(nn.Linear(dim, 1)))
        self.register_buffer("iterations", torch.zeros((), dtype=torch.int64))

    def expected_error(self, features: Tensor, actions: Tensor) -> Tensor:
        """Return g(s, a), the expected log error of the previous forward model.

        Args:
            features: of s, [B, D].
            actions: a, int64 [B] or as the action space has them.

        Returns:
            Logarithms, [B].
        """
        return self.error_model(torch.cat([features, self.actions.vector(actions)], -1)).squeeze(-1)

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        now, later = self.encode(obs), self.encode(next_obs)
        error = _log(self.forward_model.errors(now, actions, later)[0])
        progress = self.expected_error(now, actions) - error
        return torch.where(self.iterations > 0, progress, 0.0)

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        now, later = self.encode(obs), self.encode(next_obs)
        before = _log(self.previous.errors(now, actions, later)[0])
        forward = masked_mean(self.forward_model.errors(now, actions, later)[0], mask)
        error = masked_mean((self.expected_error(now, actions) - before).square(), mask)
        return forward + error, {"forward_loss": forward.detach(), "error_loss": error.detach()}

    @torch.no_grad()
    def after_rollout(self) -> None:
        """Keep the forward model that rewards the next rollout, as the error model's target."""
        self.previous.load_state_dict(self.forward_model.state_dict())
        self.iterations += 1


def _log(errors: Tensor) -> Tensor:
    """Return log of errors [B]; the floor keeps it finite where a prediction is exact."""
    return errors.clamp_min(1e-8).log()


BONUS = LearningProgress
