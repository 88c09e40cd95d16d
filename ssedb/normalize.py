"""Normalisation: fixed for observations, running for rewards and features."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ssedb.compiled import compiled
from ssedb.errors import ConfigError

BLOCK = 4
"""Side of a block of pixels; the encoders' first convolution strides by it."""


def to_blocks(images: Tensor) -> Tensor:
    """Return images as blocks of 4x4 pixels.

    Channel 16 c + 4 y + x is pixel (y, x) of the blocks of channel c. Pixels beyond the last block
    are cut off: a convolution of 8x8 that strides by 4 does not reach them.

    Args:
        images: [B, C, H, W].

    Returns:
        Blocks, [B, 16 C, H // 4, W // 4], channels_last.
    """
    b, c, h, w = (*images.shape[:2], images.shape[2] // BLOCK, images.shape[3] // BLOCK)
    images = images[..., : h * BLOCK, : w * BLOCK]
    # Four bytes at a time move several times faster; a compiler optimises the other branch.
    if not torch.compiler.is_compiling() and _in_words(images):
        words = images.view(torch.int32).view(b, c, h, BLOCK, w)
        blocks = words.permute(0, 2, 4, 1, 3).contiguous().view(torch.uint8)
    else:
        blocks = images.reshape(b, c, h, BLOCK, w, BLOCK).permute(0, 2, 4, 1, 3, 5)
    return blocks.reshape(b, h, w, c * BLOCK**2).permute(0, 3, 1, 2)


def _pictures(images: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Return (images - mean) / std, float32 channels_last; both [1, C, H, W] or a scalar."""
    # Interleaving bytes and then converting to float is several times faster than both at once.
    return torch.stack(images.unbind(1), -1).float().permute(0, 3, 1, 2).sub_(mean).div_(std)


def _scale_blocks(
    images: Tensor, mean: Tensor, std: Tensor, clip: float, dtype: torch.dtype
) -> Tensor:
    return ((to_blocks(images) - mean) / std).clamp_(-clip, clip).to(dtype)


_scale_blocks_compiled = compiled(_scale_blocks)


class ForConvolutions(nn.Module):
    """Base of normalisations for a `ConvTrunk`."""

    compute_dtype = torch.float32
    """Dtype of the convolutions."""
    fuse = False
    """Whether the normalisation is compiled into one kernel."""

    def in_blocks(
        self, images: Tensor, mean: Tensor, std: Tensor, clip: float = math.inf
    ) -> Tensor:
        """Return (images - mean) / std in blocks (`to_blocks`), clipped to +-clip.

        Args:
            images: [B, C, H, W].
            mean: [1, C, H, W].
            std: [1, C, H, W] or a scalar.
            clip: largest absolute value.

        Returns:
            Blocks, [B, 16 C, H // 4, W // 4] in `compute_dtype`.
        """
        scale = _scale_blocks_compiled if self.fuse else _scale_blocks
        # Mean and std are small: rearranged first, they let the large kernel read in order.
        std = to_blocks(std) if std.ndim else std
        return scale(images, to_blocks(mean), std, clip, self.compute_dtype)


def _in_words(images: Tensor) -> bool:
    """Tell whether bytes may be moved four at a time."""
    *strides, last = images.stride()
    aligned = not any(step % BLOCK for step in (*strides, images.storage_offset()))
    # `contiguous` leaves the strides of an empty tensor as they are, and no view fits them.
    return images.dtype == torch.uint8 and last == 1 and aligned and len(images) > 0


class ObsNorm(ForConvolutions):
    """Normalisation (x - mean) / std with a mean per pixel and one std, fixed before training.

    Input: uint8, or float of that range, [B, C, H, W]. Output: float32 of that shape. Until `set`
    is called, it is x / 255.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, obs_shape: tuple[int, ...]) -> None:
        super().__init__()
        mean = torch.zeros(1, *obs_shape)
        if mean.ndim == 4:
            mean = mean.contiguous(memory_format=torch.channels_last)
        self.register_buffer("mean", mean)
        self.register_buffer("std", torch.tensor(255.0))

    def set(self, mean: Tensor, std: Tensor) -> None:
        """Fix the mean [C, H, W] and the std, a scalar; of vectors both are [D]."""
        self.mean.copy_(mean.unsqueeze(0))
        self.std.copy_(std)

    def forward(self, obs: Tensor) -> Tensor:
        self.require_shape(obs)
        return _pictures(obs, self.mean, self.std)

    def for_convs(self, obs: Tensor) -> Tensor:
        """Normalise for a `ConvTrunk`: on a GPU in blocks (`to_blocks`) and in its dtype."""
        if not obs.is_cuda:
            return self(obs)
        self.require_shape(obs)
        return self.in_blocks(obs, self.mean, self.std)

    def require_shape(self, obs: Tensor) -> None:
        """Raise ConfigError for observations of another shape."""
        if obs.shape[1:] != self.mean.shape[1:]:
            made_for = ", ".join(map(str, self.mean.shape[1:]))
            raise ConfigError(
                f"observations of shape {list(obs.shape)}: this was made for [batch, {made_for}]; "
                "give it such, or make it for yours"
            )


class VectorNorm(ObsNorm):
    """(x - mean) / std of each dimension, fixed before training and clipped to +-10.

    Takes and returns float32 [B, D]. A dimension that never moved is divided by 1.
    """

    CLIP = 10.0

    def __init__(self, obs_shape: tuple[int, ...]) -> None:
        super().__init__(obs_shape)
        self.std = torch.ones(obs_shape)

    def forward(self, obs: Tensor) -> Tensor:
        self.require_shape(obs)
        scaled = (obs - self.mean) / moved(self.std)
        return scaled.clamp(-self.CLIP, self.CLIP)

    def for_convs(self, obs: Tensor) -> Tensor:
        """Scale for an MLP."""
        return self(obs)


def moved(std: Tensor) -> Tensor:
    """Return stds to divide by: 1 where a dimension has not moved."""
    return torch.where(std > 1e-6, std, 1.0)


def make_obs_norm(obs_shape: tuple[int, ...]) -> ObsNorm:
    """Make the scale of observations: images [C, H, W] or vectors [D]."""
    return VectorNorm(obs_shape) if len(obs_shape) == 1 else ObsNorm(obs_shape)


class RunningMoments(nn.Module):
    """Running mean and squared deviations [*shape], in a module's state."""

    count: Tensor
    mean: Tensor
    squares: Tensor

    def __init__(self, shape: tuple[int, ...] = (), dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(shape, dtype=dtype))
        self.register_buffer("squares", torch.zeros(shape, dtype=dtype))

    @property
    def variance(self) -> Tensor:
        return self.squares / self.count.clamp_min(1)

    @property
    def std(self) -> Tensor:
        """Standard deviation, [*shape]."""
        return self.variance.float().sqrt()

    @torch.no_grad()
    def add(self, batch: Tensor) -> None:
        """Add a batch [B, *shape] by Chan's rule."""
        batch, n = batch.to(self.mean), len(batch)
        mean, total = batch.mean(0), self.count + n
        delta = mean - self.mean
        between = delta.square() * (self.count * n / total).to(delta)
        self.squares += (batch - mean).square().sum(0) + between
        self.mean += delta * (n / total).to(delta)
        self.count += n


def scale_of(observations: RunningMoments, least_std: float) -> tuple[Tensor, Tensor]:
    """Return the mean and the std by which observations are scaled.

    Args:
        observations: moments of them. Each dimension of a vector has a std of its own, the pixels
            of images have one together.
        least_std: floor of the pixels' std.
    """
    std = observations.variance.sqrt()
    if std.ndim == 3:
        std = std.mean().clamp_min(least_std)
    return observations.mean.float(), std.float()


def newest_frame(obs_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the newest frame of a stack [C, H, W]; of a vector [D], its own."""
    return obs_shape if len(obs_shape) == 1 else (1, *obs_shape[1:])


class FrameNorm(RunningMoments, ForConvolutions):
    """Newest frame of a stack, normalised by running mean and std of each pixel, clipped to +-5.

    Until frames were observed, mean and std are those of an `ObsNorm`. A vector is its own newest
    frame, normalised by the moments of each dimension.
    """

    CLIP = 5.0

    def __init__(self, obs_shape: tuple[int, ...]) -> None:
        super().__init__(newest_frame(obs_shape))

    def forward(self, obs: Tensor, before: ObsNorm) -> Tensor:
        """Normalise the newest frames of stacks for a `ConvTrunk`, or vectors for an MLP.

        Args:
            obs: uint8 [B, C, H, W], or float32 [B, D].
            before: gives mean and std until frames were observed.
        """
        before.require_shape(obs)
        known = self.count > 0
        if obs.ndim == 2:
            mean = torch.where(known, self.mean, before.mean[0])
            std = moved(torch.where(known, self.std, before.std))
            return ((obs - mean) / std).clamp_(-self.CLIP, self.CLIP)
        mean = torch.where(known, self.mean, before.mean[0, -1:])
        std = torch.where(known, self.std.clamp_min(1.0), before.std)
        frames, mean, std = obs[:, -1:], mean[None], std.expand_as(mean)[None]
        if obs.is_cuda:
            return self.in_blocks(frames, mean, std, self.CLIP)
        return _pictures(frames, mean, std).clamp_(-self.CLIP, self.CLIP)

    def observe(self, obs: Tensor) -> None:
        """Update mean and std with the newest frames of stacks [B, C, H, W], or vectors [B, D]."""
        self.add(obs if obs.ndim == 2 else obs[:, -1:].float())


class FeatureNorm(nn.Module):
    """Normalisation (x - mean) / std of features [B, D] by exponentially moving moments."""

    WEIGHT = 0.01
    mean: Tensor
    square: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("square", torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / (self.square - self.mean.square()).clamp_min(1e-6).sqrt()

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Move the moments towards those of a batch [B, D]."""
        self.mean.lerp_(x.mean(0), self.WEIGHT)
        self.square.lerp_(x.square().mean(0), self.WEIGHT)


SUMS_AT_ONCE = 1024
"""Steps of a triangle of powers, whose memory grows with their square."""


def discounted_sums(rewards: Tensor, start: Tensor, gamma: float) -> Tensor:
    """Return R_t = gamma R_{t-1} + r_t, forward in time.

    One product with a triangle of powers for each SUMS_AT_ONCE steps, instead of T small steps.

    Args:
        rewards: r, [T, N].
        start: R before the first step, [N].
        gamma: the discount.

    Returns:
        R, float64 [T, N].
    """
    most = min(len(rewards), SUMS_AT_ONCE)
    steps = torch.arange(most, dtype=torch.float64, device=rewards.device)
    age = steps[:, None] - steps[None, :]
    powers = torch.where(age >= 0, gamma**age, 0.0)  # lower triangle
    fading = gamma ** (steps[:, None] + 1)
    blocks = []
    for block in rewards.double().split(SUMS_AT_ONCE):
        count = len(block)
        blocks.append(powers[:count, :count] @ block + fading[:count] * start.double())
        start = blocks[-1][-1]
    return torch.cat(blocks)


class RecentVariance(nn.Module):
    """Variance of recent batches: v <- v + w (Var(batch) - v), w = max(1 / batches, WEIGHT).

    Unlike the variance of all batches, it leaves out how the mean drifts over training.
    """

    WEIGHT = 0.02
    count: Tensor
    variance: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("variance", torch.zeros((), dtype=torch.float64))

    def add(self, batch: Tensor) -> None:
        """Add a batch [B]."""
        self.count += 1
        weight = (1 / self.count).clamp_min(self.WEIGHT)
        self.variance += weight * (batch.double().var(correction=0) - self.variance)


class RewardNorm:
    """Division of rewards by the std of their discounted sums, of the run or of recent rollouts.

    The sums run forward in time, continue from rollout to rollout and ignore episode ends. A
    rollout is added to the statistics before it is divided. No mean is subtracted.
    """

    def __init__(
        self, num_envs: int, gamma: float, device: torch.device | str = "cpu", recent: bool = False
    ) -> None:
        self.gamma = gamma
        self.sums = torch.zeros(num_envs, dtype=torch.float64, device=device)
        moments = RecentVariance() if recent else RunningMoments(dtype=torch.float64)
        self.moments: RecentVariance | RunningMoments = moments.to(device)

    def __call__(self, rewards: Tensor) -> Tensor:
        """Normalise the rewards [T, N] of a rollout."""
        sums = discounted_sums(rewards, self.sums, self.gamma)
        self.moments.add(sums.flatten())
        self.sums = sums[-1].clone()
        # A bonus that is 0 everywhere stays 0.
        return rewards / self.moments.variance.sqrt().clamp_min(1e-8).to(rewards.dtype)

    def state_dict(self) -> dict[str, Tensor]:
        return {"sums": self.sums, **self.moments.state_dict()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.sums = state["sums"].to(self.sums.device)
        self.moments.load_state_dict({k: v for k, v in state.items() if k != "sums"})
