"""What holds for every noise, and how noises are found."""

import dataclasses
import re
import sys

import pytest

import ssedb
import ssedb.noises
from ssedb import cli
from ssedb.noises import label_of, list_noises, make_noise, noise_class, noise_label, noise_of
from ssedb.testing.noises import check_noise

OUTSIDE = '''
from ssedb.noises.base import Noise


class Fog(Noise):
    """Makes everything lighter."""

    def disturb_frames(self, frames, memory, generator, want_mask=False):
        share = min(self.strength, 1.0) * (1.0 if self.variant == "white" else 0.5)
        noisy = frames + ((255 - frames) * share).to(frames.dtype)
        return noisy, noisy != frames if want_mask else None


class Falls(Noise):
    """Fails at the first frame."""

    def disturb_frames(self, frames, memory, generator, want_mask=False):
        raise ZeroDivisionError("no\\nfog")


class Thick(Fog):
    """Has two variants."""

    variants = ("gray", "white")


class Gray(Fog):
    """Has one variant."""

    variants = ("gray",)


NOISE = Fog
no_noise = 3
'''
TINY = ["--preset", "rooms", "--env", "rooms-small", "--num-envs", "4", "--rollout-steps", "16"]
TINY += ["--minibatch-envs", "2", "--obs-norm-steps", "16", "--device", "cpu", "--steps", "64"]


@pytest.fixture
def fog(tmp_path, monkeypatch):
    """A module of a stranger's, on the path."""
    (tmp_path / "strangenoise.py").write_text(OUTSIDE)
    monkeypatch.syspath_prepend(tmp_path)
    yield "strangenoise:Fog"
    sys.modules.pop("strangenoise", None)


@pytest.mark.parametrize("name", list_noises())
def test_noise_of_this_package_keeps_its_contract(name):
    failed = [(result.name, result.why) for result in check_noise(name) if result.outcome == "fail"]
    assert failed == []


def test_noise_in_a_new_file_is_found_by_its_name(tmp_path, monkeypatch, capsys):
    (tmp_path / "light_fog.py").write_text(OUTSIDE)
    monkeypatch.setattr(ssedb.noises, "__path__", [*ssedb.noises.__path__, str(tmp_path)])
    assert list_noises()[:3] == ["none", "clouds", "flicker"]
    assert ssedb.TrainConfig(noise="light-fog", noise_strength=2.0).noise == "light-fog"
    frames = ssedb.make_env("rooms-small", 2, noise="light-fog").reset()
    assert frames.min() == 127  # half of the way from black to white
    assert cli.main(["list", "noises"]) == 0
    assert re.search("light-fog +Makes everything lighter\n", capsys.readouterr().out)


def test_noise_from_outside_trains_and_evaluates_by_its_class(fog, tmp_path):
    out = tmp_path / "run"
    assert cli.main(["train", "--noise", fog, *TINY, "--out", str(out)]) == 0
    assert f'noise = "{fog}"' in (out / "config.toml").read_text()
    assert cli.main(["eval", str(out), "--episodes", "1", "--device", "cpu"]) == 0
    assert ssedb.load(out, device="cpu").make_env(2).reset().min() == 127


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fog", "noise='fog': use one of none, clouds"),
        ("strangenoise:Rain", "noise='strangenoise:Rain': module 'strangenoise' has no attribute"),
        ("nowhere.atall:Fog", "(ModuleNotFoundError: No module named 'nowhere'); install it, or"),
        ("strangenoise:no_noise", "is not a subclass of ssedb.noises.base.Noise"),
    ],
)
def test_noise_that_is_none_is_refused_in_one_line(fog, name, message, capsys):
    assert cli.main(["train", "--noise", name, *TINY]) == 2
    *imported, said = capsys.readouterr().err.splitlines()
    assert message in said
    where = [line.startswith("ssedb: importing strangenoise from /") for line in imported]
    assert where == [True] * name.startswith("strangenoise")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("sticky", 4.5), "strength=4.5: must be 0 or more and at most 4 for Sticky"),
        (("pixel", -1.0), "strength=-1.0: must be 0 or more for Pixel"),
        (
            ("pixel", 1.0, "wrap"),
            "noise_variant='wrap': Pixel has the variants add, zeros; use one of them",
        ),
        (("flicker", 1.0, "wrap"), "noise_variant='wrap': Flicker has no variants; leave it out"),
    ],
)
def test_noise_with_a_wrong_setting_is_refused(settings, message):
    with pytest.raises(ssedb.ConfigError, match=message):
        make_noise(*settings)


def test_noise_that_raises_is_named_in_one_line(fog, tmp_path, capsys):
    out = tmp_path / "run"
    assert cli.main(["train", "--noise", "strangenoise:Falls", *TINY, "--out", str(out)]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(
        "ssedb: Falls.disturb_frames raised ZeroDivisionError: no fog, before training; "
        "the traceback"
    )


def test_variant_without_a_name_is_the_papers():
    assert {
        name: make_noise(name).variant for name in list_noises() if noise_class(name).variants
    } == {
        "pixel": "add",
        "random-box": "fill",
        "sticky": "step",
    }


@pytest.mark.parametrize(
    ("fidelity", "variant"), [("paper", "fill"), ("released", "wrap"), ("ours", "fill")]
)
def test_variant_of_a_fidelity_is_that_of_a_run(fidelity, variant):
    assert make_noise("random-box", fidelity=fidelity).variant == variant
    run = ssedb.TrainConfig(noise="random-box", fidelity=fidelity)
    assert noise_of(run) == make_noise("random-box", fidelity=fidelity)


def test_variant_of_a_noise_with_one_or_none_is_the_same_under_every_fidelity(fog):
    for fidelity in ("paper", "released"):
        assert make_noise("strangenoise:Gray", fidelity=fidelity).variant == "gray"
        assert make_noise("strangenoise:Fog", fidelity=fidelity).variant == ""


@pytest.mark.parametrize(
    ("flags", "darkest"),
    [
        ([], 127),
        (["--noise-variant", "white"], 255),
        (["--fidelity", "released"], 255),
        (["--fidelity", "released", "--noise-variant", "gray"], 127),
    ],
)
def test_variant_of_a_noise_from_outside_is_selected_by_a_flag(fog, flags, darkest, tmp_path):
    out = tmp_path / "run"
    noise = ["--noise", "strangenoise:Thick", *flags]
    assert cli.main(["train", *noise, *TINY, "--bonus", "rnd", "--out", str(out)]) == 0
    assert ssedb.load(out, device="cpu").make_env(2).reset().min() == darkest


@pytest.mark.parametrize(
    ("noise", "remedy"),
    [
        ("Thick", "Thick has the variants gray, white; use one of them"),
        ("Fog", "Fog has no variants; leave it out"),
    ],
)
def test_variant_that_a_noise_from_outside_lacks_is_refused_in_one_line(fog, noise, remedy, capsys):
    name = f"strangenoise:{noise}"
    assert cli.main(["train", "--noise", name, "--noise-variant", "black", *TINY]) == 2
    said = f"noise_variant='black': {remedy}"
    assert capsys.readouterr().err.splitlines()[-1] == f"ssedb: {said}"
    with pytest.raises(ssedb.ConfigError, match=said):
        ssedb.make_env("rooms-small", 2, noise=name, noise_variant="black")


def test_variant_that_the_fidelity_chooses_anyway_makes_no_other_run(fog):
    for settings in (
        {"noise": "random-box", "noise_variant": "fill"},
        {"noise": "sticky", "noise_variant": "frame", "fidelity": "released"},
        {"noise": "strangenoise:Thick", "noise_variant": "gray", "fidelity": "ours"},
    ):
        config = ssedb.TrainConfig(**settings)
        assert config.noise_variant == ""
        assert noise_of(config).variant == settings["noise_variant"]


def test_variants_in_a_text_are_refused(fog, tmp_path, capsys):
    (tmp_path / "onlyone.py").write_text(
        "from ssedb.noises.base import Noise\nclass One(Noise):\n    variants = ('white')\n"
    )
    assert cli.main(["train", "--noise", "onlyone:One", *TINY]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "One.variants is a text; write a tuple of names" in said


@pytest.mark.parametrize(
    ("noise", "label"),
    [
        (("none", 2.0), "none"),
        (("pixel",), "pixel"),
        (("pixel", 0.5), "pixel (strength 0.5)"),
        (("pixel", 1.0, "zeros"), "pixel (zeros)"),
        (("pixel", 2.0, "zeros"), "pixel (zeros, strength 2)"),
    ],
)
def test_noise_label_names_what_is_unusual(noise, label):
    assert noise_label(*noise) == label


@pytest.mark.parametrize("fidelity", ["paper", "released", "ours"])
@pytest.mark.parametrize("noise", ["none", "noisy-tv", "pixel", "random-box", "sticky"])
def test_label_of_settings_tells_the_variant_that_is_not_the_first(noise, fidelity):
    config = ssedb.TrainConfig(noise=noise, fidelity=fidelity)
    laid = noise_of(config)
    first = laid.variant == next(iter(laid.variants), "")
    assert config.noise_label == (noise if first else f"{noise} ({laid.variant})")
    assert (fidelity == "released" and noise not in ("none", "noisy-tv")) == (not first)


def test_label_of_a_noise_from_outside_imports_nothing(monkeypatch):
    monkeypatch.setattr("ssedb.noises.noise_class", pytest.fail)
    assert label_of({"noise": "wild:Thing", "fidelity": "released"}) == "wild:Thing"


def test_noise_of_a_config_has_its_strength_and_variant():
    config = ssedb.TrainConfig(noise="pixel", noise_strength=0.5, fidelity="released")
    assert noise_of(config) == make_noise("pixel", 0.5, "zeros")
    assert noise_of(dataclasses.replace(config, noise="clouds")) == make_noise("clouds", 0.5)
    config = ssedb.TrainConfig(noise="pixel", noise_variant="zeros")
    assert noise_of(config) == make_noise("pixel", variant="zeros")
