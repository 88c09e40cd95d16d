"""The kit for noises: each check fails for a noise that is broken just there, and for no other."""

import sys

import pytest
import torch

from ssedb import cli
from ssedb.noises.base import Noise
from ssedb.noises.pixel import Pixel
from ssedb.testing import noises
from ssedb.testing.noises import CHECKS, check_noise


class Whole(Noise):
    """A sound noise to break: brightens frames and forgets to act."""

    raw = True

    def begin(self, num_envs, num_actions, generator):
        return {"light": torch.rand(num_envs, generator=generator, device=generator.device)}

    def advance(self, memory, actions, dones, generator):
        light = memory["light"]
        return {"light": torch.rand(light.shape, generator=generator, device=light.device)}

    def light(self, frames, memory):
        return memory["light"].view(-1, *[1] * (frames.ndim - 1))

    def disturb_frames(self, frames, memory, generator, want_mask=False):
        noisy = frames + 0.5 * self.strength * self.light(frames, memory) * (255 - frames)
        noisy = noisy.to(torch.uint8)
        return noisy, noisy != frames if want_mask else None

    def disturb_actions(self, actions, memory, generator):
        none = (memory["light"] < 0.3 * self.strength) & (self.strength > 0)
        return torch.where(none, 0, actions), none


class FloatFrames(Whole):
    def disturb_frames(self, frames, memory, generator, want_mask=False):
        noisy, mask = super().disturb_frames(frames, memory, generator, want_mask)
        return (noisy.float() if noisy.ndim == 4 else noisy), mask


class GrowingMemory(Whole):
    def advance(self, memory, actions, dones, generator):
        after = super().advance(memory, actions, dones, generator)
        return {**after, "actions": actions}


class StuckDial(Whole):
    def disturb_actions(self, actions, memory, generator):
        return torch.where(memory["light"] < 0.3, 0, actions), memory["light"] < 0.3


class GlobalDraws(Whole):
    def disturb_frames(self, frames, memory, generator, want_mask=False):
        torch.rand(1)
        return super().disturb_frames(frames, memory, generator, want_mask)


class InPlace(Whole):
    def advance(self, memory, actions, dones, generator):
        after = super().advance(memory, actions, dones, generator)
        dones.fill_(False)
        return after


class NarrowMask(Whole):
    def disturb_frames(self, frames, memory, generator, want_mask=False):
        noisy, mask = super().disturb_frames(frames, memory, generator, want_mask)
        return noisy, mask if mask is None else mask & (frames > 100)


class Mixing(Whole):
    def advance(self, memory, actions, dones, generator):
        after = super().advance(memory, actions, dones, generator)
        return {"light": (after["light"] + 0.1 * actions[0]) % 1}


class SameForAll(Whole):
    def light(self, frames, memory):
        return super().light(frames, memory)[:1]


class BatchSized(Whole):
    def light(self, frames, memory):
        return super().light(frames, memory) / (4 if len(frames) == 1 else 1)


class Unfelt(Whole):
    """Only ever touches what no agent sees."""

    raw = False

    def disturb_frames(self, frames, memory, generator, want_mask=False):
        noisy, mask = super().disturb_frames(frames, memory, generator, want_mask)
        dark = frames.float().mean() < 90  # as those of Rooms are
        return (frames if dark else noisy), mask

    def disturb_actions(self, actions, memory, generator):
        return actions, None


class Forgetful(Whole):
    def begin(self, num_envs, num_actions, generator):
        object.__setattr__(self, "age", 0)
        return super().begin(num_envs, num_actions, generator)

    def advance(self, memory, actions, dones, generator):
        object.__setattr__(self, "age", self.age + 1)
        after = super().advance(memory, actions, dones, generator)
        return {"light": (after["light"] + 0.1 * self.age) % 1}


BROKEN = {
    "frames_and_actions_keep_their_kind": FloatFrames,
    "memory_is_rows": GrowingMemory,
    "strength_0_is_none": StuckDial,
    "the_same_seed_gives_the_same_noise": GlobalDraws,
    "arguments_are_left_alone": InPlace,
    "mask_holds_all_that_changed": NarrowMask,
    "rows_do_not_mix": Mixing,
    "each_environment_has_noise_of_its_own": SameForAll,
    "a_batch_is_like_one_by_one": BatchSized,
    "noise_reaches_the_agent": Unfelt,
    "restoring_goes_on_exactly": Forgetful,
}


def failed(cls: type[Noise]) -> list[str]:
    results = check_noise(f"{cls.__module__}:{cls.__name__}")
    return [result.name for result in results if result.outcome == "fail"]


def test_sound_noise_passes_every_check():
    assert failed(Whole) == []


class GrayOnly(Whole):
    raw = False

    def light(self, frames, memory):
        return memory["light"].view(-1, 1, 1)


def test_noise_without_raw_gets_no_colour_frames():
    assert failed(GrayOnly) == []
    assert "frames_and_actions_keep_their_kind" in failed(RawGray)


class RawGray(GrayOnly):
    raw = True


@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_noise_that_is_broken_in_one_place_fails_that_check_alone(check):
    # One draw for a whole batch is also unlike as many draws as there are frames.
    also = ["a_batch_is_like_one_by_one"] if BROKEN[check] is SameForAll else []
    assert failed(BROKEN[check]) == [check, *also]


def sound_and(broken: type[Noise]) -> type[Noise]:
    """A noise with two variants: a sound one, and then the broken one."""

    def dispatch(name):
        def call(self, *args, **kwargs):
            cls = broken if self.variant == "broken" else Whole
            return getattr(cls, name)(self, *args, **kwargs)

        return call

    names = ("begin", "advance", "light", "disturb_frames", "disturb_actions")
    methods = {name: dispatch(name) for name in names}
    return type("TwoVariants", (broken,), {"variants": ("sound", "broken"), **methods})


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_second_variant_that_is_broken_is_found_and_named(monkeypatch, check):
    cls = sound_and(BROKEN[check.__name__])
    monkeypatch.setattr(sys.modules[__name__], "TwoVariants", cls, raising=False)
    monkeypatch.setattr(noises, "CHECKS", [check])
    (result,) = check_noise(f"{__name__}:TwoVariants")
    assert result.outcome == "fail"
    assert result.why.startswith("variant broken: ")


class DrawnInOneVariant(SameForAll):
    """Its first variant draws nothing."""

    variants = ("still", "drawn")

    def begin(self, num_envs, num_actions, generator):
        if self.variant == "still":
            generator = torch.Generator().manual_seed(0)
        return super().begin(num_envs, num_actions, generator)

    advance = Noise.advance


def test_variant_that_draws_nothing_hides_no_fault_of_another():
    results = {result.name: result for result in check_noise(f"{__name__}:DrawnInOneVariant")}
    found = results["each_environment_has_noise_of_its_own"]
    assert found.why == "variant drawn: all environments get the same noise"


class Rain(Noise):
    def disturb_frames(self, frames, memory, generator, want_mask=False):
        drops = torch.rand(frames.shape) < 0.1 * self.strength
        return torch.where(drops, 255, frames).to(torch.uint8), drops


class MasklessRain(Rain):
    def disturb_frames(self, frames, memory, generator, want_mask=False):
        return super().disturb_frames(frames, memory, generator, want_mask)[0], None


def test_noise_from_the_global_generator_fails_for_that_alone():
    results = {result.name: result for result in check_noise(f"{__name__}:Rain")}
    wrong = {name: result.why for name, result in results.items() if result.outcome == "fail"}
    assert list(wrong) == ["the_same_seed_gives_the_same_noise"]
    assert wrong.popitem()[1].startswith("it draws from a global random state")
    skipped = results["each_environment_has_noise_of_its_own"]
    assert skipped.why == "it draws nothing from the generator that it is given"


def test_missing_mask_is_reported_once_and_hides_no_other_fault():
    wrong = {r.name: r.why for r in check_noise(f"{__name__}:MasklessRain") if r.outcome == "fail"}
    assert wrong == {
        "the_same_seed_gives_the_same_noise": "it draws from a global random state; "
        "use the generator alone",
        "mask_holds_all_that_changed": "disturb_frames returns no mask, though it is wanted",
    }


def test_check_command_tells_a_noise_from_a_bonus(capsys):
    assert cli.main(["check", "flicker"]) == 0
    said = capsys.readouterr().out
    assert "pass  strength_0_is_none" in said
    assert said.endswith("flicker: keeps its contract\n")
    assert cli.main(["check", f"{__name__}:StuckDial"]) == 1
    said = capsys.readouterr().out
    assert "fail  strength_0_is_none" in said
    assert said.endswith("StuckDial: 1 of 11 checks failed\n")


def test_noise_on_its_own_variants_is_checked_in_each(monkeypatch):
    seen = []
    monkeypatch.setattr(noises, "CHECKS", [lambda subject: seen.extend(subject.variants())])
    check_noise("pixel")
    assert seen == [Pixel(1.0, "add"), Pixel(1.0, "zeros")]
