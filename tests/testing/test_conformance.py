"""Our bonuses keep their contract; a bonus that breaks it is caught, there and nowhere else."""

import importlib
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import ssedb
from ssedb import cli
from ssedb.bonuses.base import Bonus
from ssedb.cli.check import print_sensitivity
from ssedb.testing import behaviour, contract
from ssedb.testing.conformance import CHECKS, check_bonus, run_check, sensitivity
from ssedb.testing.subject import Subject
from tests.broken import BROKEN

pytest_plugins = "pytester"

OTHERWISE = {
    "count-frames": ("count", {"counted": "frames"}),
    "db-ours": ("db", {"prediction_std": "calibrated", "target_frames": "newest"}),
    "db-no-momentum": ("db", {"ablation": "no-nce-no-momentum"}),
}
VARIANTS = {**{name: (name, {}) for name in ssedb.list_bonuses()}, **OTHERWISE}


@pytest.fixture
def smaller_huge_batch(monkeypatch):
    monkeypatch.setattr(behaviour, "HUGE", 1024)


@pytest.mark.parametrize(("name", "options"), VARIANTS.values(), ids=VARIANTS)
def test_bonuses_of_this_package_keep_their_contract(name, options, smaller_huge_batch):
    results = check_bonus(name, **options)
    assert [f"{r.name}: {r.why}" for r in results if r.outcome == "fail"] == []
    assert [r.name for r in results] == [check.__name__ for check in CHECKS]
    assert {r.name: r.outcome for r in results}["vectors_are_rewarded_too"] == "pass"


class LosesNaN(Bonus):
    """A bonus whose weights are NaN after its first update."""

    def __init__(self, obs_shape, num_actions, options):
        super().__init__(obs_shape, num_actions)
        self.level = torch.nn.Parameter(torch.zeros(()))

    def reward(self, obs, actions, next_obs):
        return self.level + obs.float().flatten(1).mean(1)

    def loss(self, obs, actions, next_obs, mask=None):
        return self.level * torch.nan, {}


def test_weights_that_are_nan_are_not_called_changed_by_calls_that_change_nothing():
    outcomes = {r.name: r.outcome for r in check_bonus(f"{__name__}:LosesNaN")}
    assert outcomes["reward_changes_nothing"] == outcomes["diagnostics_change_nothing"] == "pass"
    assert "fail" in outcomes.values()


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize("cls", BROKEN, ids=lambda cls: cls.__name__)
def test_bonus_that_is_broken_in_one_place_fails_that_check_alone(cls, smaller_huge_batch):
    results = check_bonus(f"tests.broken:{cls.__name__}")
    assert [r.name for r in results if r.outcome == "fail"] == [cls.breaks, *cls.also]


def test_checks_each_have_a_bonus_that_breaks_them_and_a_sentence():
    assert {check.__name__ for check in CHECKS} == {cls.breaks for cls in BROKEN}
    assert all(check.__doc__ for check in CHECKS)


def test_check_without_a_subject_is_skipped_with_the_reason():
    skipped = {r.name: r.why for r in check_bonus("none") if r.outcome == "skip"}
    assert skipped == {
        "features_are_rows": "it has no features",
        "loss_decreases": "it has no trained parameters",
        "fixed_parts_stay": "it names no fixed submodule",
        "bonus_reaches_the_policy": "it declares gives_reward = False",
    }


def test_checks_leave_the_callers_randomness_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    check_bonus("tests.broken:Sound")
    assert torch.equal(torch.get_rng_state(), before)


def test_sensitivity_report_tells_blind_from_fooled():
    assert sensitivity(Subject("none")) == dict.fromkeys(
        ["clouds", "flicker", "noisy-tv", "pixel", "random-box"]
    )
    shares = sensitivity(Subject("rnd"))
    assert list(shares) == ["clouds", "flicker", "noisy-tv", "pixel", "random-box"]
    assert min(shares.values()) > 0.5  # it rewards noise
    seeing, blind = (
        sensitivity(Subject(f"tests.testing.test_conformance:{name}"))
        for name in ("Brightness", "Actions")
    )
    assert min(seeing.values()) > 0.05
    assert max(blind.values()) == 0


class Brightness(ssedb.bonuses.bonus_class("none")):
    def reward(self, obs, actions, next_obs):
        return next_obs.float().mean((1, 2, 3))


class Actions(Brightness):
    def reward(self, obs, actions, next_obs):
        return actions.float()


def test_check_command_lists_the_checks_and_exits_1_on_a_failure(capsys):
    assert cli.main(["check", "count"]) == 0
    shown = capsys.readouterr().out
    assert "pass  reward_is_finite" in shown
    assert "skip  loss_decreases                         it has no trained parameters" in shown
    assert "random-box" in shown
    assert "count: keeps its contract" in shown
    assert cli.main(["check", "tests.broken:PaysByPosition"]) == 1
    shown = capsys.readouterr().out
    assert (
        "fail  order_does_not_matter                  rewards in order and out of it: they differ"
        in shown
    )
    assert "tests.broken:PaysByPosition: 1 of 20 checks failed" in shown


class NoLoss(Bonus):
    def reward(self, obs, actions, next_obs):
        return torch.zeros(len(obs))


class NoArguments(Brightness):
    def __init__(self):
        super().__init__((4, 84, 84), 5, None)


class Clumsy(Brightness):
    def __init__(self, *given):
        raise IndexError("oh")


class NumPyReward(Brightness):
    def reward(self, obs, actions, next_obs):
        return super().reward(obs, actions, next_obs).numpy()


class OddLoss(Brightness):
    returned = None

    def loss(self, obs, actions, next_obs, mask=None):
        return self.returned


@pytest.mark.parametrize(
    ("cls", "error"),
    [
        (NoLoss, "bonus='{name}' has no loss; docs/new-bonus.md shows one"),
        (NoArguments, "its __init__ must take obs_shape, num_actions and options"),
        (Clumsy, "{name} cannot be built as cls(obs_shape, num_actions, options): IndexError: oh"),
    ],
)
def test_bonus_that_cannot_be_built_is_reported_once(cls, error, capsys):
    name = f"{__name__}:{cls.__name__}"
    assert cli.main(["check", name]) == 1
    shown = " ".join(capsys.readouterr().out.split())  # lines may be wrapped
    assert shown.startswith("fail can_be_built ")
    assert shown.count("fail ") == 1
    assert error.format(name=name) in shown
    assert shown.endswith(f"{name}: breaks its contract; no further check was run")
    # The plugin runs each check on its own.
    result = run_check(behaviour.vectors_are_rewarded_too, Subject(name))
    assert result.outcome == "fail"


def test_bonus_that_returns_no_tensor_is_reported_once():
    results = check_bonus(f"{__name__}:NumPyReward")
    assert [(r.outcome, r.why) for r in results] == [
        ("fail", "reward returned a numpy.ndarray, must be a torch.Tensor")
    ]


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        ((0.0, {}), "loss returned a float, must be a torch.Tensor"),
        (None, "loss returned None, must be a pair: the loss, a dict of metrics"),
        (
            torch.zeros(()),
            "loss returned a torch.Tensor, must be a pair: the loss, a dict of metrics",
        ),
        ((torch.zeros(()), None), "the metrics of loss are None, must be a dict"),
    ],
)
def test_bonus_whose_loss_is_no_pair_is_reported_once(monkeypatch, returned, why):
    monkeypatch.setattr(OddLoss, "returned", returned)
    results = check_bonus(f"{__name__}:OddLoss")
    assert [r.why for r in results if r.outcome == "fail"] == [why]
    assert results[-1].why == why


@pytest.mark.parametrize("name", ["is_finite", "has_no_gradient", "is_deterministic"])
def test_check_of_a_reward_on_its_own_names_what_is_no_tensor(name):
    check = getattr(contract, f"reward_{name}")
    result = run_check(check, Subject(f"{__name__}:NumPyReward"))
    assert result.why == "reward returned a numpy.ndarray, must be a torch.Tensor"


class Constant(Brightness):
    def reward(self, obs, actions, next_obs):
        return torch.ones(len(obs))


@pytest.mark.parametrize(("cls", "noted"), [(Constant, True), (Brightness, False)])
def test_check_command_says_when_the_shares_say_little(cls, noted, capsys):
    print_sensitivity(Subject(f"{__name__}:{cls.__name__}"))
    shown = capsys.readouterr().out
    assert "measured with 40 transitions under 4 draws of the noise:\n  clouds  " in shown
    note = (
        "note: without noise the bonus is the same for all 40 transitions;\nthe shares say little"
    )
    assert (note in shown) == noted


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["icmm"], "bonus='icmm': did you mean icm? use one of cb, count"),
        (["tests.broken:Nothing"], "module 'tests.broken' has no attribute 'Nothing'"),
        (
            ["no.such.module:Class"],
            "ssedb: 'no.such.module:Class': cannot import 'no.such.module' (",
        ),
        (["tests.broken:SIDE"], "is not a subclass of ssedb.bonuses.base.Bonus"),
        (["flickr"], "noise='flickr': did you mean flicker? use one of none, clouds"),
        (["ssedb.noises.base:Snow"], "noise='ssedb.noises.base:Snow': module"),
        (["tests.broken.Sound"], "'tests.broken.Sound': write tests.broken:Sound"),
        (["tests.broken"], "'tests.broken': write tests.broken:Class"),
        (["tests"], "'tests': write tests:Class"),
        (["./tests/broken.py"], "'./tests/broken.py': write broken:Class, and set PYTHONPATH to"),
        (["./broken.py:Sound"], "'./broken.py:Sound': write broken for ./broken.py, and set"),
        (["icm", "--device", "tpu"], "device='tpu': use auto, cpu"),
    ],
)
def test_check_command_with_a_wrong_name_ends_in_one_line(args, message, capsys):
    assert cli.main(["check", *args]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert len(said.strip().splitlines()) == 1


OUTSIDE = """
import torch
from ssedb.bonuses.base import Bonus

class Bright(Bonus):
    def __init__(self, obs_shape, num_actions, options):
        super().__init__(obs_shape, num_actions)

    @torch.no_grad()
    def reward(self, obs, actions, next_obs):
        return self.normalize(next_obs).mean((1, 2, 3))

    def loss(self, obs, actions, next_obs, mask=None):
        return torch.zeros(()), {}

class Cumulative(Bright):
    def reward(self, obs, actions, next_obs):
        return super().reward(obs, actions, next_obs).cumsum(0)

class Crashes(Bright):
    def reward(self, obs, actions, next_obs):
        return self.not_there
"""


@pytest.fixture
def compiler():
    """Import modules of torch that cannot be imported twice; pytester forgets what it imports."""
    importlib.import_module("torch._inductor.compile_fx")
    importlib.import_module("torch._inductor.test_operators")


@pytest.fixture
def outside(compiler, pytester, monkeypatch):
    """Pytest in a project of its own."""
    # The plugin is loaded by name, installed or not.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.syspath_prepend(pytester.path)
    pytester.makepyfile(mine=OUTSIDE, test_mine="def test_of_their_own(): pass")
    return lambda *args: pytester.runpytest_inprocess("-p", "ssedb.testing.plugin", *args)


def test_plugin_checks_a_class_of_another_project(outside):
    result = outside("--ssedb-bonus", "mine:Bright", "--ssedb-bonus", "mine:Cumulative", "-v")
    result.assert_outcomes(passed=1 + 16 + 15, skipped=2 * 4, failed=1)
    result.stdout.fnmatch_lines(
        [
            "test_mine.py::test_of_their_own PASSED*",
            "ssedb::mine:Bright::order_does_not_matter PASSED*",
            "ssedb::mine:Cumulative::features_are_rows SKIPPED (it has no features)*",
            "ssedb::mine:Cumulative::order_does_not_matter FAILED*",
            "*mine:Cumulative: order_does_not_matter*",
            "rewards in order and out of it: they differ by up to *",
            "  wanted: a batch in another order has its rewards in that order",
        ]
    )
    assert result.ret == 1


def test_plugin_shows_where_a_bonus_crashes_and_obeys_k(outside):
    result = outside("--ssedb-bonus", "mine:Crashes", "-k", "reward_is_finite", "--tb=short")
    result.assert_outcomes(failed=1, deselected=20)
    result.stdout.fnmatch_lines(
        ["mine.py:*: in reward", "E   AttributeError: 'Crashes' object has no attribute *"]
    )
    result.stdout.no_fnmatch_line("*_multicall*")


def test_plugin_imports_from_the_folder_it_is_called_in(outside, pytester):
    """With `pytest`, which does not put it on the path, as `python -m pytest` does."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "pytest",
        "-p",
        "ssedb.testing.plugin",
        "--import-mode=importlib",
    ]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    result = subprocess.run(
        [*command, "--ssedb-bonus", "mine:Bright", "-k", "reward_is_finite"],
        cwd=pytester.path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 passed, 20 deselected" in result.stdout, result.stderr


def test_plugin_refuses_a_wrong_name_and_is_silent_without_one(outside):
    wrong = outside("--ssedb-bonus", "mine:Absent")
    assert wrong.ret == pytest.ExitCode.USAGE_ERROR
    wrong.stderr.fnmatch_lines(
        ["ERROR: --ssedb-bonus: bonus='mine:Absent': module 'mine' has no attribute 'Absent'*"]
    )
    outside().assert_outcomes(passed=1)


def test_plugin_is_declared_and_light():
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert declared["project"]["entry-points"]["pytest11"] == {"ssedb": "ssedb.testing.plugin"}
    code = (
        "import sys, ssedb.testing.plugin; "
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
