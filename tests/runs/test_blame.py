"""Errors of the machine and of code from outside, told in one line."""

from dataclasses import dataclass

import pytest
import torch

import ssedb
from ssedb import cli
from ssedb.analysis.probe import probe_run
from ssedb.bonuses.base import Bonus, BonusOptions
from ssedb.errors import ConfigError, TrainingError
from ssedb.noises.base import Noise
from ssedb.runs.blame import blaming
from tests.toy import tiny_config


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()])
def test_full_memory_is_one_line_that_another_try_may_pass(tmp_path, error):
    said = "^out of memory at step 5; use smaller networks"
    with pytest.raises(TrainingError, match=said) as told, blaming(tmp_path, lambda: "at step 5"):
        raise error
    assert told.value.may_pass
    assert not (tmp_path / "error.log").exists()


def test_networks_that_no_memory_holds_end_in_one_line(tmp_path):
    with pytest.raises(TrainingError, match=r"^out of memory before training"):
        ssedb.train(tiny_config(tmp_path / "run", policy_width=10**11))


class Right(Bonus):
    """A bonus that keeps its contract; the others break it in one way."""

    def __init__(self, obs_shape, num_actions, options):
        super().__init__(obs_shape, num_actions)
        self.level = torch.nn.Parameter(torch.zeros(()))

    def reward(self, obs, actions, next_obs):
        return obs.float().flatten(1).mean(1) * 0 + 1

    def loss(self, obs, actions, next_obs, mask=None):
        return self.level**2, {"level": self.level.detach()}


class RewardsNothing(Right):
    def reward(self, obs, actions, next_obs):
        pass


class RewardsInDoubles(Right):
    def reward(self, obs, actions, next_obs):
        return super().reward(obs, actions, next_obs).double()


class LosesNothing(Right):
    def loss(self, obs, actions, next_obs, mask=None):
        pass


class LosesWithoutMetrics(Right):
    def loss(self, obs, actions, next_obs, mask=None):
        return self.level**2


class LogsNumbers(Right):
    def loss(self, obs, actions, next_obs, mask=None):
        return self.level**2, {"level": self.level.item()}


class TakesNoMask(Right):
    def loss(self, obs, actions, next_obs):
        return self.level**2, {}


class DiagnosesNumbers(Right):
    def diagnostics(self, obs, actions, next_obs):
        return {"level": 1.0}


class Crops(Noise):
    def disturb_frames(self, frames, memory, generator, want_mask=False):
        return frames[:, :-2], None


class Brightens(Noise):
    def disturb_frames(self, frames, memory, generator, want_mask=False):
        return frames / 255, None


class ForgetsTheMask(Noise):
    def disturb_frames(self, frames, memory, generator, want_mask=False):
        return frames


def settings(out, **changes):
    """Settings of a run with a class of this file."""
    own = {name: f"{__name__}:{cls.__name__}" for name, cls in changes.items()}
    return tiny_config(out, preset="rooms", steps=256, bonus_options={}, **{"bonus": "rnd", **own})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"bonus": RewardsNothing},
            r"RewardsNothing\.reward gave a NoneType, not a float32 tensor",
        ),
        (
            {"bonus": RewardsInDoubles},
            r"reward gave shape \[\d+\] of torch\.float64, not a float32",
        ),
        ({"bonus": LosesNothing}, r"LosesNothing\.loss gave a NoneType, not a loss and a dict of"),
        ({"bonus": LosesWithoutMetrics}, r"loss gave a Tensor, not a loss and a dict of metrics"),
        ({"bonus": LogsNumbers}, "loss gave the metric 'level' as a float, not as a tensor"),
        (
            {"bonus": TakesNoMask},
            r"with bonus=.*:TakesNoMask from outside: TypeError: .*\.loss\(\)",
        ),
        ({"bonus": DiagnosesNumbers}, "with bonus=.*:DiagnosesNumbers from outside: TypeError"),
        ({"noise": Crops}, r"Crops\.disturb_frames gave frames of shape \[8, 42, 44\] of .*, not"),
        (
            {"noise": Brightens},
            r"Brightens\.disturb_frames gave frames of .* of torch\.float32, not",
        ),
        ({"noise": ForgetsTheMask}, "with noise=.*:ForgetsTheMask from outside: ValueError"),
    ],
)
def test_code_from_outside_that_breaks_its_contract_is_named_in_one_line(tmp_path, changes, said):
    with pytest.raises(TrainingError, match=said) as told:
        ssedb.train(settings(tmp_path / "run", **changes))
    assert "\n" not in str(told.value)
    assert not told.value.may_pass
    assert "Traceback" in (tmp_path / "run" / "error.log").read_text()


@pytest.fixture
def broken_later(tmp_path, monkeypatch):
    """The folder of a run whose bonus fails since it was trained."""
    ssedb.train(settings(tmp_path / "run", bonus=Right))

    def reward(self, obs, actions, next_obs):
        raise ValueError("oops")

    monkeypatch.setattr(Right, "reward", reward)
    return tmp_path / "run"


def test_bonus_that_fails_in_an_analysis_is_named_in_one_line(broken_later, capsys):
    for module in ("av", "matplotlib"):
        pytest.importorskip(module)
    with pytest.raises(TrainingError, match=r"^Right\.reward raised ValueError: oops, under the"):
        probe_run(broken_later, transitions=128, draws=2)
    assert cli.main(["analyze", "spikes", str(broken_later)]) == 1
    assert "ssedb: Right.reward raised ValueError: oops, under" in capsys.readouterr().err


def test_bonus_that_fails_costs_the_report_its_episode_alone(broken_later, tmp_path, capsys):
    assert cli.main(["report", str(broken_later), "--out", str(tmp_path / "page")]) == 0
    assert "Right.reward raised ValueError: oops" in capsys.readouterr().err
    assert (tmp_path / "page" / "index.html").exists()


def test_plan_of_a_bonus_that_fails_names_it_in_one_line(tmp_path, capsys):
    (tmp_path / "grid.toml").write_text(
        f'''
        [settings]
        env = "rooms-tiny"
        preset = "rooms"
        num_envs = 4
        minibatch_envs = 2
        steps = 64
        bonus = "{__name__}:RewardsNothing"
        [axes]
        seed = [0]
        '''
    )
    grid = ["sweep", str(tmp_path / "grid.toml"), "--out", str(tmp_path / "runs"), "--dry-run"]
    assert cli.main(grid) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("ssedb: RewardsNothing.reward gave a NoneType")
    assert said.endswith("in the short run that measures its speed")


class NotDerived(Right):
    @dataclass(frozen=True)
    class Options:
        size: int = 3


class NotDecorated(Right):
    class Options(BonusOptions):
        size: int = 3


@pytest.mark.parametrize("cls", [NotDerived, NotDecorated])
def test_options_that_are_no_dataclass_of_ours_are_refused(cls):
    with pytest.raises(ConfigError, match="its Options must be a @dataclass"):
        ssedb.make_bonus(f"{__name__}:{cls.__name__}", (4, 36, 36), 3)
