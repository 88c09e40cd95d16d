"""Checks that any noise must pass, ours and other people's: `ssedb check NAME`, or from Python.

Each check is a function of a `NoiseSubject`, as those of a bonus are of a `Subject`. It looks at
every variant of the noise.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ssedb.envs import make_env
from ssedb.envs.base import Env
from ssedb.envs.noisy import NoisyEnv
from ssedb.noises.base import Memory, Noise
from ssedb.testing.conformance import Result, run_check
from ssedb.testing.noise_subject import (
    ACTIONS,
    ENVS,
    STEPS,
    NoiseSubject,
    Points,
    before_and_after,
    widened,
)
from ssedb.testing.subject import Failure, Skip, seeded

MANY, FIELDS = 200, 4
"""Frames and fields of each by which a batch is compared with frames one by one."""

BOUND = 5.0
"""Standard errors; chance alone exceeds them once in 1.7 million."""


# The checks, in the order of a report.


def frames_and_actions_keep_their_kind(subject: NoiseSubject) -> None:
    """Check that frames and actions keep dtype, shape (vectors may get wider) and device."""
    for noise in subject.variants():
        for kind in subject.kinds(noise):
            trace = subject.trace(noise, kind)
            for name in ("actions", "frames"):
                for before, after in before_and_after(trace, name):
                    _require_kind(after, before.dtype, before, name)
            for mask in trace["mask"]:
                _require_kind(mask, torch.bool, trace["frames"][0], "the mask")


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
        for kind in subject.kinds(noise):
            trace = subject.trace(noise, kind)
            for name in ("actions", "frames"):
                for before, after in before_and_after(trace, name):
                    if share := float((before != after).double().mean()):
                        raise Failure(f"{name} change at strength 0 ({share:.1%} of them)")


def the_same_seed_gives_the_same_noise(subject: NoiseSubject) -> None:
    """Check that only the generator decides what is drawn; global states do not matter or move."""
    for noise in subject.variants():
        traces = []
        for seed in (0, 1):
            torch.manual_seed(seed)
            np.random.seed(seed)
            random.seed(seed)
            before = _global_randomness()
            traces.append(subject.trace(noise, subject.usual))
            if _global_randomness() != before:
                raise Failure("it draws from a global random state; use the generator alone")
        first, second = ([x for values in t.values() for x in values] for t in traces)
        if len(first) != len(second) or not all(map(torch.equal, first, second)):
            raise Failure("two runs with the same seed of the generator differ")


def _global_randomness() -> tuple[object, ...]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    states = [state.tolist() for state in (torch.get_rng_state(), *cuda)]
    return states, pickle.dumps(np.random.get_state()), random.getstate()


def arguments_are_left_alone(subject: NoiseSubject) -> None:
    """Check that frames, actions and memory that are handed in stay as they are."""
    for noise in subject.variants():
        generator = subject.generator(0)
        memory = noise.begin(ENVS, ACTIONS, generator)
        actions = torch.arange(ENVS, device=subject.device) % ACTIONS
        dones, frames = actions > 2, subject.frames(subject.usual)
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
        for kind in subject.kinds(noise):
            trace = subject.trace(noise, kind)
            if len(trace["mask"]) < STEPS:
                raise Failure("disturb_frames returns no mask, though it is wanted")
            masks = {"frames": trace["mask"], "actions": trace["replaced"]}
            for name, found in masks.items():
                pairs = list(before_and_after(trace, name))
                if not found and any(not torch.equal(*pair) for pair in pairs):
                    raise Failure(f"{name} are replaced, and no mask says where")
                for (before, after), mask in zip(pairs, found or [], strict=bool(found)):
                    if ((before != after) & ~mask).any():
                        raise Failure(f"{name} change outside of the mask")
        memory = noise.begin(ENVS, ACTIONS, subject.generator(0))
        frames = subject.frames(subject.usual)
        seen = []
        for want in (True, False):
            torch.manual_seed(0)
            generator = subject.generator(1)
            seen.append(noise.disturb_frames(frames, memory, generator, want_mask=want)[0])
        if not torch.equal(*seen):
            raise Failure("the frames differ between want_mask=True and False")


def rows_do_not_mix(subject: NoiseSubject) -> None:
    """Check that what one environment sees and does changes nothing for the others."""
    for noise in subject.variants():
        traces = []
        for odd_row in (False, True):
            torch.manual_seed(0)  # draws from the global generator are another check's
            traces.append(subject.trace(noise, subject.usual, odd_row=odd_row))
        usual, odd = traces
        for name, rows in usual.items():
            if any(not torch.equal(a[1:], b[1:]) for a, b in zip(rows, odd[name], strict=True)):
                raise Failure(f"another first row changes {name} of the other rows")


def each_environment_has_noise_of_its_own(subject: NoiseSubject) -> None:
    """Check that the same frame looks different in different environments."""
    if not subject.cls.changes_frames():
        raise Skip("it leaves frames alone")
    draws = False
    for noise in subject.variants():
        generator = subject.generator(0)
        before, frames = generator.get_state(), subject.frames(subject.usual, MANY)
        noisy, _ = noise.disturb_frames(frames, _memory(noise, frames, generator), generator)
        if torch.equal(generator.get_state(), before):
            continue
        draws = True
        if torch.equal(noisy, noisy[:1].expand_as(noisy)):
            raise Failure("all environments get the same noise")
    if not draws:
        raise Skip("it draws nothing from the generator that it is given")


def a_batch_is_like_one_by_one(subject: NoiseSubject) -> None:
    """Check that frames change as much in a large batch as in a batch of one."""
    if not subject.cls.changes_frames():
        raise Skip("it leaves frames alone")
    for noise in subject.variants():
        frames, generator = subject.frames(subject.usual, MANY), subject.generator(0)
        batch = _changes(noise, frames, generator)
        single = torch.cat([_changes(noise, frame[None], generator) for frame in frames])
        error = ((batch.var(0) + single.var(0)) / MANY).sqrt().clamp_min(1e-6)
        z = (batch.mean(0) - single.mean(0)) / error
        if z.abs().max() > BOUND:
            raise Failure(f"they differ by {z.abs().max():.0f} standard errors")


def _changes(noise: Noise, frames: Tensor, generator: torch.Generator) -> Tensor:
    """Return the mean change and its size in each field of each frame, or dimension, [N, 2 K]."""
    noisy, _ = noise.disturb_frames(frames, _memory(noise, frames, generator), generator)
    change = noisy.double() - widened(frames, noisy).double()
    if change.ndim == 2:
        return torch.cat([change, change.abs()], 1)
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
    if not (subject.cls.changes_actions() or subject.cls.changes_frames()):
        raise Skip("it changes nothing")
    clean = _episode(subject, None)
    for noise in subject.variants():
        if noise.frame_repeat is not None:
            continue  # the emulator's own
        noisy = _episode(subject, noise)
        if clean.shape == noisy.shape and torch.equal(clean, noisy):
            raise Failure("20 steps look the same with and without it")


def restoring_goes_on_exactly(subject: NoiseSubject) -> None:
    """Check that an environment that loads a saved state goes on with the same noise."""
    for noise in subject.variants():
        if noise.frame_repeat is not None:
            continue  # the emulator's own
        if not torch.equal(_episode(subject, noise), _episode(subject, noise, restore_at=7)):
            raise Failure("frames differ after loading; what a step needs belongs in the memory")


def _episode(subject: NoiseSubject, noise: Noise | None, restore_at: int | None = None) -> Tensor:
    """Return the frames of 20 random steps, half of them by a restored twin if asked.

    Images are those of Rooms, vectors those of `Points`.
    """

    def make(seed: int) -> NoisyEnv:
        if subject.cls.disturbs == "images":
            plain: Env = make_env("rooms-small", ENVS, device=str(subject.device))
        else:
            plain = Points(ENVS, subject.device)
        return NoisyEnv(plain, noise or Noise(), seed=seed)

    torch.manual_seed(0)  # draws from the global generator are another check's
    env, inputs = make(0), torch.Generator().manual_seed(0)
    seen = [env.reset()]
    for t in range(20):
        if t == restore_at:
            with seeded(subject.device):
                twin = make(1)
                twin.reset()
            twin.load_state_dict(env.state_dict())
            env = twin
        actions = torch.randint(ACTIONS, (ENVS,), generator=inputs)
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


def run_checks(subject: NoiseSubject) -> Iterator[Result]:
    """Run all checks of a noise, one by one."""
    return (_run_check(check, subject) for check in CHECKS)


def _run_check(check: Callable[[NoiseSubject], None], subject: NoiseSubject) -> Result:
    """Run a check; its failure names the variant, where the noise has several."""
    subject.variant = ""
    result = run_check(check, subject)
    if result.outcome == "fail" and subject.variant:
        return replace(result, why=f"variant {subject.variant}: {result.why}")
    return result


def check_noise(name: str, device: str = "cpu") -> list[Result]:
    """Run all checks of a noise, by its name or `package.module:Class`."""
    return list(run_checks(NoiseSubject(name, device)))
