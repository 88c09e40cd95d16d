"""Evaluation: episodes of a trained agent, and their scores."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ssedb.config import TrainConfig
from ssedb.errors import ConfigError, require_installed
from ssedb.runs.files import own_folder, require_writable, write_json, write_whole
from ssedb.runs.folder import require_checkpoint, saved_config
from ssedb.runs.lock import only_run_of_this_process

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

MOST_ENVS = 16
FRAMES_PER_SECOND = 15  # 60 emulated frames, 4 to an agent step
ZOOM = 4
MOST_STILLS = 100
GAP = 2
"""Pixels between two stills."""


@dataclass(frozen=True)
class Evaluation:
    """Scores of whole episodes."""

    run: Path
    """The run's folder."""
    env: str
    """Environment of the run."""
    noise: str
    """Noise of the run, under which the episodes ran."""
    steps: int
    """Agent steps that the agent was trained for."""
    scores: list[float]
    """Sum of the environment's rewards, not clipped, for each episode."""
    lengths: list[int]
    """Agent steps of each episode."""
    video: Path | None
    """The video of the first episode, if one was asked for."""
    stills: Path | None = None
    """The picture of some frames of the first episode, if one was asked for."""


def require_evaluable(
    run: Path, episodes: int, video: bool, seed: int, stills: int = 0
) -> TrainConfig:
    """Return a run's settings; raise ConfigError for a mistake, before torch is loaded."""
    config = dataclasses.replace(saved_config(run), seed=seed)
    if episodes < 1:
        raise ConfigError(f"episodes={episodes}: must be 1 or more")
    if not 0 <= stills <= MOST_STILLS:
        raise ConfigError(f"stills={stills}: must be 0 to {MOST_STILLS}")
    if video:
        require_installed("av", extra="report", instead="leave --video out")
    if stills:
        require_installed("matplotlib", extra="report", instead="leave --stills out")
    require_checkpoint(run, config)
    require_writable(run)
    return config


def evaluate(
    run: Path | str,
    episodes: int = 10,
    *,
    video: bool = False,
    stills: int = 0,
    seed: int = 1000,
    device: str = "auto",
) -> Evaluation:
    """Run whole episodes of a run's newest agent, and write their scores to `eval.json`.

    Each has an environment of its own, so that short episodes are not favoured.

    Args:
        run: the run's folder.
        episodes: how many.
        video: whether to write the first episode as a video.
        stills: how many frames of the first episode to write as one picture.
        seed: of the episodes.
        device: auto, cpu, cuda or cuda:N.
    """
    run = Path(run)
    config = require_evaluable(run, episodes, video, seed, stills)
    import torch

    from ssedb.runs.agent import load
    from ssedb.runs.blame import blaming

    agent = load(run, device)
    if (video or stills) and len(agent.obs_shape) != 3:
        flag = "--video" if video else "--stills"
        raise ConfigError(f"{config.env} observes vectors, which no video shows; leave {flag} out")
    scores: list[float] = []
    lengths: list[int] = []
    frames: list[Tensor] = []
    with (
        only_run_of_this_process(),
        blaming(run, agent.when, config=config),
        torch.random.fork_rng(),
    ):
        torch.manual_seed(seed)
        while len(scores) < episodes:
            env = agent.make_env(
                min(MOST_ENVS, episodes - len(scores)), seed=seed, seed_key=len(scores)
            )
            try:
                kept = frames if (video or stills) and not scores else None
                score, length = run_episodes(env, agent.policy, kept)
            finally:
                env.close()
            scores += score
            lengths += length
    if video or stills:
        own_folder(run, "videos")
    path = run / "videos" / f"step-{agent.steps}-seed-{seed}"
    film = write_video(path.with_suffix(".mp4"), frames) if video else None
    strip = write_stills(path.with_suffix(".png"), frames, stills) if stills else None
    about = (run, config.env, config.noise_label, agent.steps)
    result = Evaluation(*about, scores, lengths, video=film, stills=strip)
    write_json(run / "eval.json", dataclasses.asdict(result))
    return result


def run_episodes(
    env: Any, policy: Any, record: list[Tensor] | None = None
) -> tuple[list[float], list[int]]:
    """Run one episode in each environment; return the scores and lengths.

    `record` gets the frames of the first environment.
    """
    import torch

    from ssedb.collect.rollout import Rollout

    frames = env.reset()
    shape = tuple(frames.shape[1:])
    rollout = Rollout(1, env.num_envs, shape, env.device, num_actions=env.num_actions)
    rollout.begin(frames)
    scores, lengths = torch.zeros(env.num_envs), torch.zeros(env.num_envs, dtype=torch.int64)
    running = torch.ones(env.num_envs, dtype=torch.bool)
    while running.any():
        if record is not None and running[0]:
            record.append(rollout.obs(0)[0, -1].cpu())
        actions = policy.act(rollout.obs(0))[0]
        step = env.step(actions)
        rollout.advance(step)
        scores += step.rewards.cpu() * running
        lengths += running
        running &= ~step.dones.cpu()
    return scores.tolist(), lengths.tolist()


def write_video(path: Path, frames: Iterable[Tensor | np.ndarray], zoom: int = ZOOM) -> Path:
    """Write frames, [H, W] in gray or [H, W, 3] in colour, to an MP4, enlarged."""
    import av
    import numpy as np

    buffer = io.BytesIO()
    with av.open(buffer, "w", format="mp4") as file:
        stream = file.add_stream("h264", rate=FRAMES_PER_SECOND)
        stream.pix_fmt = "yuv420p"
        # Noise is hard to compress; the slower presets gain little on it.
        stream.options = {"preset": "veryfast"}
        for i, frame in enumerate(frames):
            picture = np.asarray(frame).repeat(zoom, 0).repeat(zoom, 1)
            if i == 0:
                stream.height, stream.width = picture.shape[:2]
            kind = "gray" if picture.ndim == 2 else "rgb24"
            file.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format=kind)))
        file.mux(stream.encode())
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, buffer.getbuffer())
    return path


def write_stills(path: Path, frames: Sequence[Tensor], count: int) -> Path:
    """Write frames [H, W], evenly spaced from the first to the last, side by side to a PNG."""
    import numpy as np
    from matplotlib.image import imsave

    from ssedb.thin import evenly_spaced

    chosen = [frames[i].numpy() for i in evenly_spaced(len(frames), count)]
    pictures = [np.pad(frame, (0, GAP), constant_values=255) for frame in chosen]
    strip = np.concatenate(pictures, axis=1)[:-GAP, :-GAP]
    buffer = io.BytesIO()
    imsave(buffer, strip.repeat(2, 0).repeat(2, 1), cmap="gray", vmin=0, vmax=255)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, buffer.getbuffer())
    return path
