"""Options of a bonus that this package does not know: a run's file keeps them, of any type."""

import dataclasses
import enum
import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ssedb.bonuses.base import BonusOptions
from ssedb.bonuses.none import NoBonus
from ssedb.cli.train import parse_train
from ssedb.config import ConfigError, TrainConfig
from ssedb.options import resolve_options
from ssedb.report.command import train_command
from ssedb.sweep.grid import run_id

BONUS = "tests.test_validate:Strange"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass(frozen=True)
class Inner:
    width: int = 3
    gain: float = 1.0


@dataclasses.dataclass(frozen=True)
class StrangeOptions(BonusOptions):
    text: str = "plain"
    pair: tuple[int, float] = (0, 0.5)
    zeros: tuple[int, ...] = (0, 0)
    either: int | float | str = 0
    cap: float | None = 5.0
    weights: dict[str, float] = dataclasses.field(default_factory=dict)
    by_depth: dict[int, list[str]] = dataclasses.field(default_factory=dict)
    place: Path | None = None
    colour: Colour = Colour.RED
    names: frozenset[str] = frozenset()
    inner: Inner = dataclasses.field(default_factory=Inner)
    anything: Any = "x"
    scale: float = 1


class Strange(NoBonus):
    Options = StrangeOptions


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
PATHS = st.text(st.characters(codec="utf-8", exclude_characters="\0")).map(Path)
PLAIN = st.recursive(
    st.booleans() | st.integers() | FLOATS | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
STRANGE = st.fixed_dictionaries(
    {},
    optional=dict(
        text=st.text(),
        pair=st.tuples(st.integers(), FLOATS),
        zeros=st.lists(st.integers(-1, 1), max_size=3).map(tuple),
        either=st.integers() | FLOATS | st.text(),
        cap=st.none() | FLOATS,
        weights=st.dictionaries(st.text(), FLOATS, max_size=3),
        by_depth=st.dictionaries(st.integers(), st.lists(st.text(), max_size=2), max_size=3),
        place=st.none() | PATHS,
        colour=st.sampled_from(Colour),
        names=st.frozensets(st.text(), max_size=3),
        inner=st.builds(Inner, st.integers(), FLOATS),
        anything=st.none() | PLAIN,
        scale=FLOATS,
    ),
)


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(options=STRANGE)
def test_config_toml_of_an_outside_bonus_reads_back_the_same(tmp_path, options):
    config = TrainConfig(bonus=BONUS, bonus_options=options)
    assert {name: config.bonus_options[name] for name in options} == options
    (tmp_path / "config.toml").write_text(config.to_toml(), encoding="utf-8")
    again = TrainConfig.from_toml(tmp_path / "config.toml")
    assert again == config
    assert type(again.bonus_options["either"]) is type(config.bonus_options["either"])
    assert run_id(again) == run_id(config)


def test_config_toml_of_an_outside_bonus_tells_none_from_a_default(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text(TrainConfig(bonus=BONUS, bonus_options={"cap": None}).to_toml())
    assert '"None"' not in path.read_text()
    assert TrainConfig.from_toml(path).bonus_options["cap"] is None
    path.write_text(TrainConfig(bonus=BONUS).to_toml().replace("cap = 5.0\n", ""))
    assert TrainConfig.from_toml(path).bonus_options["cap"] == 5.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pair": (1.5, 1)}, "pair=(1.5, 1): must be a whole number"),
        ({"pair": (1,)}, "pair=(1,): must be a list of 2"),
        ({"pair": [1, 2.0, 3]}, "pair=[1, 2.0, 3]: must be a list of 2"),
        ({"either": None}, "either=None: must be a whole number or a finite number or text"),
        ({"cap": "5"}, "cap='5': must be a finite number"),
        ({"cap": math.inf}, "cap=inf: must be a finite number"),
        ({"weights": {"a": "b"}}, "weights={'a': 'b'}: must be a finite number"),
        ({"weights": [1]}, "weights=[1]: must be a table"),
        ({"colour": "green"}, "colour='green': use one of red, blue"),
        ({"inner": {"width": 1.5}}, "inner={'width': 1.5}: must be a whole number"),
        ({"anything": [None]}, "anything=[None]: may hold text, finite numbers, true, false"),
        ({"anything": "\ud800"}, "anything='\\ud800': may hold text, finite numbers"),
        ({"text": print}, "text=<built-in function print>: may hold text, finite numbers"),
    ],
)
def test_options_of_an_outside_bonus_that_do_not_fit_are_refused_in_one_line(options, message):
    with pytest.raises(ConfigError) as error:
        TrainConfig(bonus=BONUS, bonus_options=options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_options_of_a_type_without_a_form_in_toml_are_refused(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Options(BonusOptions):
        hook: json.JSONEncoder = dataclasses.field(default_factory=json.JSONEncoder)

    monkeypatch.setattr(Strange, "Options", Options)
    with pytest.raises(ConfigError, match=r"Options.hook: no setting can be of type .*; it may "):
        resolve_options(BONUS, {})


def test_flags_of_an_outside_bonus_reach_its_options_and_the_command_that_repeats_it():
    words = ["--pair", "0", "2", "--cap", "None", "--weights", "a=1", "b c=2.5", "--scale", "3"]
    words += ["--colour", "BLUE", "--place", "a b", "--names", "x", "y z", "--text", "'"]
    config, _ = parse_train(["--bonus", BONUS, *words])
    options = config.bonus_options
    assert (options["pair"], options["cap"], options["scale"]) == ((0, 2.0), None, 3.0)
    assert (options["colour"], options["place"]) == (Colour.BLUE, Path("a b"))
    assert (options["weights"], options["names"]) == ({"a": 1.0, "b c": 2.5}, {"x", "y z"})
    again, _ = parse_train(shlex.split(train_command(config))[2:])
    assert again == config


def test_run_id_of_one_and_of_1_0_is_the_same():
    assert run_id(TrainConfig(intrinsic_coef=1)) == run_id(TrainConfig(intrinsic_coef=1.0))
    as_default, given_as_float = ({}, {"scale": 1.0})
    assert run_id(TrainConfig(bonus=BONUS, bonus_options=as_default)) == run_id(
        TrainConfig(bonus=BONUS, bonus_options=given_as_float)
    )
    assert run_id(TrainConfig(intrinsic_coef=1)) != run_id(TrainConfig(intrinsic_coef=2))
