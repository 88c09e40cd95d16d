"""Checks that any noise must pass, ours and other people's: `ssedb check NAME`, or from Python.

Each check is a function of a `NoiseSubject`, as those of a bonus are of a `Subject`. It looks at
every variant of the noise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from ssedb.engine.host import pick_device
from ssedb.envs import make_env
from ssedb.envs.noisy import NoisyEnv
from ssedb.noises import noise_class
from ssedb.noises.base import Memory, Noise
from ssedb.testing.conformance import Result, run_check
from ssedb.testing.subject import Failure, Skip

ENVS, ACTIONS, STEPS = 6, 5, 4
SHAPES = {"gray": (84, 84), "colour": (210, 160, 3)}
MANY, FIELDS = 200, 4
"""Frames and fields of each by which a batch is compared with frames one by one."""
BOUND = 5.0
"""Standard errors; chance alone exceeds them once in 1.7 million."""

Trace = dict[str, list[Tensor]]


class NoiseSubject:
    """A noise by its name, or as `package.module:Class`."""

    def __init__(self, name: str, device: str = "cpu") -> None:
        self.name, self.device, self.cls = name, pick_device(device), noise_class(name)

    def variants(self, strength: float = 1.0) -> Iterator[Noise]:
        """Yield the noise in each of its variants."""
        for variant in self.cls.variants or ("",):
            yield self.cls(strength, variant)

    def generator(self, seed: int) -> torch.Generator:
        """Return a new generator on the device."""
        return torch.Generator(self.device).manual_seed(seed)

    def frames(self, kind: str, count: int = ENVS) -> Tensor:
        """Return the same frame for all environments, a quarter of it black."""
        frame = torch.randint(256, SHAPES[kind], generator=torch.Generator().manual_seed(0))
        frame[: len(frame) // 2, : frame.shape[1] // 2] = 0
        return frame.to(torch.uint8).to(self.device).expand(count, *frame.shape).clone()

    def trace(self, noise: Noise, kind: str, seed: int = 0, odd_row: bool = False) -> Trace:
        """Return what a few steps give: actions, frames, masks and memory.

        With `odd_row`, the first environment sees and does something else than it otherwise would.
        """
        generator, inputs = self.generator(seed), torch.Generator().manual_seed(1)
        memory = noise.begin(ENVS, ACTIONS, generator)
        trace: Trace = {"actions": [], "replaced": [], "frames": [], "mask": [], "memory": []}
        for _ in range(STEPS):
            actions = torch.randint(ACTIONS, (ENVS,), generator=inputs).to(self.device)
            dones = (torch.rand(ENVS, generator=inputs) < 0.3).to(self.device)
            frames = self.frames(kind)
            if odd_row:
                actions[0], dones[0] = (actions[0] + 1) % ACTIONS, ~dones[0]
                frames[0] = 255 - frames[0]
            executed, replaced = noise.disturb_actions(actions, memory, generator)
            memory = noise.advance(memory, executed, dones, generator)
            noisy, mask = noise.disturb_frames(frames, memory, generator, want_mask=True)
            if mask is None:
                raise Failure("disturb_frames returns no mask, though it is wanted")
            trace["actions"] += [actions, executed]
            trace["replaced"] += [replaced] if replaced is not None else []
            trace["frames"] += [frames, noisy]
            trace["mask"] += [mask]
            trace["memory"] += list(memory.values())
        return trace


def _same(first: Trace, second: Trace) -> bool:
    return all(
        len(first[name]) == len(second[name])
        and all(torch.equal(a, b) for a, b in zip(first[name], second[name], strict=True))
        for name in first
    )


# The checks, in the order of a report.


def frames_and_actions_keep_their_kind(subject: NoiseSubject) -> None:
    """Check that frames stay uint8 and actions int64, of the same shape and on the same device."""
    for noise in subject.variants():
        for kind in SHAPES:
            trace = subject.trace(noise, kind)
            for name in ("actions", "frames"):
                for before, after in zip(trace[name][::2], trace[name][1::2], strict=True):
                    _require_kind(after, before.dtype, before, name)
            for mask, frames in zip(trace["mask"], trace["frames"][::2], strict=True):
                _require_kind(mask, torch.bool, frames, "the mask")


def _require_kind(found: Tensor, dtype: torch.dtype, like: Tensor, what: str) -> None:
    is_, should = (found.dtype, found.shape), (dtype, like.shape)
    if is_ != should or found.device != like.device:
        raise Failure(f"{what}: {is_} on {found.device}, must be {should} on {like.device}")


def memory_is_rows(subject: NoiseSubject) -> None:
    """Check that begin and advance return tensors of the same names, a row for each environment."""
    for noise in subject.variants():
        generator = subject.generator(0)
        memory = noise.begin(ENVS, ACTIONS, generator)
        zeros = torch.zeros(ENVS, dtype=torch.int64, device=subject.device)
        after = noise.advance(memory, zeros, zeros > 0, generator)
        kinds = [_kinds(memory), _kinds(after)]
        if kinds[0] != kinds[1]:
            raise Failure(f"begin returns {kinds[0]}, advance returns {kinds[1]}")
        if odd := [name for name, rows in memory.items() if len(rows) != ENVS]:
            raise Failure(f"{odd[0]!r} has {len(memory[odd[0]])} rows for {ENVS} environments")


def _kinds(memory: Memory) -> dict[str, tuple[torch.dtype, torch.Size]]:
    return {name: (rows.dtype, rows.shape) for name, rows in memory.items()}


def strength_0_is_none(subject: NoiseSubject) -> None:
    """Check that at strength 0 frames and actions are as they were."""
    for noise in subject.variants(0.0):
        for kind in SHAPES:
            trace = subject.trace(noise, kind)
            for name in ("actions", "frames"):
                for before, after in zip(trace[name][::2], trace[name][1::2], strict=True):
                    if not torch.equal(before, after):
                        raise Failure(f"{name} change at strength 0 ({_share(before, after)})")


def _share(before: Tensor, after: Tensor) -> str:
    return f"{float((before != after).double().mean()):.1%} of them"


def the_same_seed_gives_the_same_noise(subject: NoiseSubject) -> None:
    """Check that only the generator decides what is drawn; global states do not matter or move."""
    for noise in subject.variants():
        traces = []
        for seed in (0, 1):
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            before = _global_randomness()
            traces.append(subject.trace(noise, "gray"))
            if _global_randomness() != before:
                raise Failure("it draws from a global random state; use the generator alone")
        if not _same(*traces):
            raise Failure("two runs with the same seed of the generator differ")


def _global_randomness() -> tuple[object, ...]:
    numpy = [
        part.tolist() if isinstance(part, np.ndarray) else part for part in np.random.get_state()
    ]
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    states = [state.tolist() for state in (torch.get_rng_state(), *cuda)]
    return states, numpy, random.getstate()


def arguments_are_left_alone(subject: NoiseSubject) -> None:
    """Check that frames, actions and memory that are handed in stay as they are."""
    for noise in subject.variants():
        generator = subject.generator(0)
        memory = noise.begin(ENVS, ACTIONS, generator)
        actions = torch.arange(ENVS, device=subject.device) % ACTIONS
        dones, frames = actions > 2, subject.frames("gray")
        given = {"actions": actions, "dones": dones, "frames": frames, **memory}
        before = {name: value.clone() for name, value in given.items()}
        noise.disturb_actions(actions, memory, generator)
        noise.disturb_frames(frames, memory, generator)
        noise.advance(memory, actions, dones, generator)
        if changed := [name for name in given if not torch.equal(given[name], before[name])]:
            raise Failure(f"it changes the {changed[0]} that it is given; work on a copy")


def mask_holds_all_that_changed(subject: NoiseSubject) -> None:
    """Check that outside of the mask nothing changes, and asking for the mask changes no frame."""
    for noise in subject.variants():
        for kind in SHAPES:
            trace = subject.trace(noise, kind)
            masks = {"frames": trace["mask"], "actions": trace["replaced"]}
            for name, found in masks.items():
                pairs = list(zip(trace[name][::2], trace[name][1::2], strict=True))
                if not found and any(not torch.equal(*pair) for pair in pairs):
                    raise Failure(f"{name} are replaced, and no mask says where")
                for (before, after), mask in zip(pairs, found or [], strict=bool(found)):
                    if ((before != after) & ~mask).any():
                        raise Failure(f"{name} change outside of the mask")
        memory, frames = noise.begin(ENVS, ACTIONS, subject.generator(0)), subject.frames("gray")
        with_mask, without = (
            noise.disturb_frames(frames, memory, subject.generator(1), want_mask=want)[0]
            for want in (True, False)
        )
        if not torch.equal(with_mask, without):
            raise Failure("the frames differ between want_mask=True and False")


def rows_do_not_mix(subject: NoiseSubject) -> None:
    """Check that what one environment sees and does changes nothing for the others."""
    for noise in subject.variants():
        usual, odd = (subject.trace(noise, "gray", odd_row=odd) for odd in (False, True))
        for name, rows in usual.items():
            if any(not torch.equal(a[1:], b[1:]) for a, b in zip(rows, odd[name], strict=True)):
                raise Failure(f"another first row changes {name} of the other rows")


def each_environment_has_noise_of_its_own(subject: NoiseSubject) -> None:
    """Check that the same frame looks different in different environments."""
    if not subject.cls.changes_frames():
        raise Skip("it leaves frames alone")
    for noise in subject.variants():
        generator = subject.generator(0)
        before, frames = generator.get_state(), subject.frames("gray", MANY)
        noisy, _ = noise.disturb_frames(frames, _memory(noise, frames, generator), generator)
        if torch.equal(generator.get_state(), before):
            raise Skip("it draws nothing at random")
        if torch.equal(noisy, noisy[:1].expand_as(noisy)):
            raise Failure("all environments get the same noise")


def a_batch_is_like_one_by_one(subject: NoiseSubject) -> None:
    """Check that frames change as much in a large batch as in a batch of one."""
    if not subject.cls.changes_frames():
        raise Skip("it leaves frames alone")
    for noise in subject.variants():
        frames, generator = subject.frames("gray", MANY), subject.generator(0)
        batch = _changes(noise, frames, generator)
        single = torch.cat([_changes(noise, frame[None], generator) for frame in frames])
        error = ((batch.var(0) + single.var(0)) / MANY).sqrt().clamp_min(1e-6)
        z = (batch.mean(0) - single.mean(0)) / error
        if z.abs().max() > BOUND:
            raise Failure(f"they differ by {z.abs().max():.0f} standard errors")


def _changes(noise: Noise, frames: Tensor, generator: torch.Generator) -> Tensor:
    """Return the mean change and its size in each field of each frame, [N, 2 x fields]."""
    noisy, _ = noise.disturb_frames(frames, _memory(noise, frames, generator), generator)
    change = noisy.double() - frames.double()
    fields = change.unflatten(1, (FIELDS, -1)).unflatten(3, (FIELDS, -1))
    return torch.cat([fields.mean((2, 4)), fields.abs().mean((2, 4))], 1).flatten(1)


def _memory(noise: Noise, frames: Tensor, generator: torch.Generator) -> Memory:
    """Return what is remembered after a few steps of the last action."""
    memory = noise.begin(len(frames), ACTIONS, generator)
    actions = torch.full((len(frames),), ACTIONS - 1, device=frames.device)
    for _ in range(STEPS):
        memory = noise.advance(memory, actions, actions < 0, generator)
    return memory


def noise_reaches_the_agent(subject: NoiseSubject) -> None:
    """Check that in a real environment the agent sees other frames than without the noise."""
    noise = next(subject.variants())
    if not (noise.changes_actions() or noise.changes_frames()):
        raise Skip("it changes nothing")
    clean, noisy = (_episode(subject, made) for made in (None, noise))
    if torch.equal(clean, noisy):
        raise Failure("20 steps of Rooms look the same with and without it")


def restoring_goes_on_exactly(subject: NoiseSubject) -> None:
    """Check that an environment that loads a saved state goes on with the same noise."""
    for noise in subject.variants():
        if noise.frame_repeat is not None:
            continue  # the emulator's own
        if not torch.equal(_episode(subject, noise), _episode(subject, noise, restore_at=7)):
            raise Failure("frames differ after loading; what a step needs belongs in the memory")


def _episode(subject: NoiseSubject, noise: Noise | None, restore_at: int | None = None) -> Tensor:
    """Return the frames of 20 random steps of Rooms, half of them by a restored twin if asked."""

    def make(seed: int) -> NoisyEnv:
        plain = make_env("rooms-small", ENVS, device=str(subject.device))
        return plain if noise is None else NoisyEnv(plain, noise, seed=seed)

    env, inputs = make(0), torch.Generator().manual_seed(0)
    seen = [env.reset()]
    for t in range(20):
        if t == restore_at:
            twin = make(1)
            twin.reset()
            twin.load_state_dict(env.state_dict())
            env = twin
        actions = torch.randint(env.num_actions, (ENVS,), generator=inputs)
        seen.append(env.step(actions.to(subject.device)).frames)
    return torch.stack(seen)


CHECKS: tuple[Callable[[NoiseSubject], None], ...] = (
    frames_and_actions_keep_their_kind,
    memory_is_rows,
    strength_0_is_none,
    the_same_seed_gives_the_same_noise,
    arguments_are_left_alone,
    mask_holds_all_that_changed,
    rows_do_not_mix,
    each_environment_has_noise_of_its_own,
    a_batch_is_like_one_by_one,
    noise_reaches_the_agent,
    restoring_goes_on_exactly,
)


def check_noise(name: str, device: str = "cpu") -> list[Result]:
    """Run all checks of a noise, by its name or `package.module:Class`."""
    subject = NoiseSubject(name, device)
    return [run_check(check, subject) for check in CHECKS]
