"""Dynamic Bottleneck: a representation of what the dynamics need, and the bonus made of it."""

from __future__ import annotations

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ssedb import objectives
from ssedb.actions import NumActions
from ssedb.bonuses.base import Bonus
from ssedb.networks import Encoder, Posterior, Projection, Residual, Trunk, glorot
from ssedb.options import DBOptions

FREE_STD_INIT, FREE_STD_FLOOR = 1.0, 0.1
HEAD_STD_FLOOR = 1e-3


class PredictionHead(nn.Module):
    """Prediction q(s' | z): the mean [B, S] of the next state, and the std [B, 1].

    The std is None if it is to be calibrated on the batch.
    """

    def __init__(self, options: DBOptions) -> None:
        super().__init__()
        self.kind = options.prediction_std
        self.trunk = Trunk(options.latent_dim, options.hidden_dim, options.state_dim)
        self.mean = Residual(options.state_dim)
        if self.kind == "head":
            self.std = glorot(nn.Linear(options.state_dim, 1))
        elif self.kind == "scalar":
            self.free_std = nn.Parameter(torch.tensor(FREE_STD_INIT))

    def forward(self, z: Tensor) -> tuple[Tensor, Tensor | None]:
        hidden = self.trunk(z)
        if self.kind == "head":
            return self.mean(hidden), softplus(self.std(hidden)) + HEAD_STD_FLOOR
        if self.kind == "scalar":
            return self.mean(hidden), softplus(self.free_std).clamp_min(FREE_STD_FLOOR)
        return self.mean(hidden), None


class DynamicBottleneck(Bonus):
    """Reward for the distance of a state-action pair's representation from N(0, I)."""

    Options = DBOptions
    fixed: tuple[str, ...] = ("momentum_encoder", "momentum_projection")

    def __init__(
        self, obs_shape: tuple[int, ...], num_actions: NumActions, options: DBOptions
    ) -> None:
        super().__init__(obs_shape, num_actions)
        self.options = options
        state, hidden, latent = options.state_dim, options.hidden_dim, options.latent_dim
        self.encoder = Encoder(obs_shape, options.channels, state)
        self.posterior = Posterior(
            state, self.actions.width, hidden, latent, options.action_input == "every"
        )
        self.head = PredictionHead(options)
        self.projection = Projection(state, hidden, latent)
        self.score_weight = nn.Parameter(torch.rand(latent, latent))
        self.momentum_encoder = copy.deepcopy(self.encoder).requires_grad_(False)
        self.momentum_projection = copy.deepcopy(self.projection).requires_grad_(False)

    def represent(self, obs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and the std, each [B, Z], of z ~ g^Z(f_o(o), a) [eq:paraf].

        Args:
            obs: o, uint8 [B, C, H, W] or float32 [B, D].
            actions: a, int64 [B] or as the action space has them.
        """
        state = self.encoder(self.normalize.for_convs(obs))
        return self.posterior(state, self.actions.vector(actions))

    def target(self, next_obs: Tensor) -> Tensor:
        """Return the state to predict, s' = f_m(o') [eq:paraf].

        Args:
            next_obs: o', uint8 [B, C, H, W] or float32 [B, D].

        Returns:
            States, [B, S].
        """
        frames = self.normalize.for_convs(next_obs)
        if self.options.target_frames == "newest" and next_obs.ndim == 4:
            # All but the newest become the mean picture. Consecutive stacks share those frames,
            # and with them their noise.
            frames[:, : -frames.shape[1] // next_obs.shape[1]] = 0
        if not self.options.momentum_target:
            return self.encoder(frames)
        with torch.no_grad():
            return self.momentum_encoder(frames)

    @torch.no_grad()
    def reward(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> Tensor:
        return objectives.db_bonus(*self.represent(obs, actions), self.options.bonus_root)

    @torch.no_grad()
    def features(self, obs: Tensor, actions: Tensor) -> Tensor:
        return self.represent(obs, actions)[0]

    def loss(
        self, obs: Tensor, actions: Tensor, next_obs: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        z_mean, z_std = self.represent(obs, actions)
        next_state = self.target(next_obs)
        mean, std = self.head(z_mean + z_std * torch.randn_like(z_mean))
        if std is None:
            std = objectives.calibrated_std(next_state, mean, mask)
        contrasted = (
            mean if self.options.nce_input == "mean" else mean + std * torch.randn_like(mean)
        )
        with torch.no_grad():
            actual = self.momentum_projection(next_state)
        scores = objectives.bilinear_scores(self.projection(contrasted), self.score_weight, actual)

        i_upper = objectives.compression_upper_bound(z_mean, z_std, mask)
        i_pred = objectives.predictive_lower_bound(next_state, mean, std, mask)
        i_nce = objectives.contrastive_lower_bound(scores, mask)
        alphas = self.options.alpha1, self.options.alpha2, self.options.alpha3
        loss = objectives.db_loss(i_upper, i_pred, i_nce, alphas)
        metrics = {
            "i_upper": i_upper,
            "i_pred": i_pred,
            "i_nce": i_nce,
            "prediction_std": std.mean(),
        }
        more, others = self.loss_over(z_mean.detach(), actual, mask)
        return loss + more, {name: value.detach() for name, value in (metrics | others).items()}

    def loss_over(
        self, z: Tensor, actual: Tensor, mask: Tensor | None
    ) -> tuple[Tensor | float, dict[str, Tensor]]:
        """Return the loss and metrics of a subclass's own model over z.

        Args:
            z: means, [B, Z], without gradient.
            actual: projected next states f_m^P(s'), [B, Z], without gradient.
            mask: rows that count, bool [B].
        """
        return 0.0, {}

    def after_step(self) -> None:
        if self.options.momentum_every == "step":
            self.update_momentum()

    def after_epoch(self) -> None:
        if self.options.momentum_every == "epoch":
            self.update_momentum()

    def momentum_copies(self) -> list[tuple[nn.Module, nn.Module]]:
        """Return each momentum copy with the online module that it follows."""
        return [
            (self.momentum_encoder, self.encoder),
            (self.momentum_projection, self.projection),
        ]

    def update_momentum(self) -> None:
        """Move the momentum copies towards the online modules."""
        for momentum, online in self.momentum_copies():
            objectives.momentum_update(momentum.parameters(), online.parameters(), self.options.tau)

    @torch.no_grad()
    def diagnostics(self, obs: Tensor, actions: Tensor, next_obs: Tensor) -> dict[str, Tensor]:
        """Return effective ranks of encoded states and of z, and the I_nce of blind guessing.

        An effective rank of 1 means a collapsed representation. I_nce is guessed among all B rows.
        A mask of the ends of episodes leaves somewhat fewer, of which a guess is as much better.
        """
        z_mean, _ = self.represent(obs, actions)
        return {
            "rank_state": effective_rank(self.target(next_obs)),
            "rank_z": effective_rank(z_mean),
            "i_nce_chance": torch.full((), -math.log(len(obs)), device=obs.device),
        }


def effective_rank(features: Tensor) -> Tensor:
    """Return exp(-sum p_i log p_i), p_i the normalised singular values of features [B, D].

    Returns:
        A scalar: 1 if all rows are alike, at most min(B, D), nan if a feature is not finite.
    """
    rows = features.double()
    gram = rows.T @ rows if len(rows) > rows.shape[1] else rows @ rows.T
    # The decomposition fails on values that are not finite; the trainer reports the nan.
    spectrum = torch.linalg.eigvalsh(gram.nan_to_num(0, 0, 0)).clamp_min(0).sqrt()
    share = spectrum / spectrum.sum().clamp_min(1e-12)
    return torch.where(gram.isfinite().all(), torch.special.entr(share).sum().exp(), torch.nan)


BONUS = DynamicBottleneck
