"""Ablations of DB: settings, never another class."""

import pytest
import torch

import ssedb
from ssedb.cli.train import parse_train
from ssedb.config import TrainConfig
from ssedb.options import DBOptions
from tests.bonuses.plain import batch, make
from tests.toy import TINY_OPTIONS

OFF = {
    "no-upper": {"alpha1": 0.0},
    "no-pred": {"alpha2": 0.0},
    "no-nce": {"alpha3": 0.0},
    "no-nce-no-momentum": {"alpha3": 0.0, "momentum_target": False},
}
KNOBS = ("alpha1", "alpha2", "alpha3", "momentum_target")


@pytest.mark.parametrize("ablation", OFF)
@pytest.mark.parametrize("bonus", ["db", "db-ucb"])
def test_ablation_by_flag_option_or_file_is_the_same(ablation, bonus, tmp_path):
    whole = TrainConfig(env="breakout", bonus=bonus).bonus_options
    assert all(whole[name] for name in KNOBS)
    wanted = {name: OFF[ablation].get(name, whole[name]) for name in KNOBS}
    by_option = TrainConfig(env="breakout", bonus=bonus, bonus_options={"ablation": ablation})
    by_flag, _ = parse_train(["--env", "breakout", "--bonus", bonus, "--ablation", ablation])
    assert by_flag == by_option
    (tmp_path / "config.toml").write_text(by_option.to_toml())
    assert TrainConfig.from_toml(tmp_path / "config.toml") == by_option
    built = ssedb.make_bonus(
        bonus, (4, 36, 36), 4, **{**TINY_OPTIONS, "ablation": ablation}
    ).options
    for options in (by_option.bonus_options, vars(built)):
        assert options["ablation"] == ablation
        assert {name: bool(options[name]) for name in KNOBS} == {
            name: bool(wanted[name]) for name in KNOBS
        }
    assert {name: by_option.bonus_options[name] for name in KNOBS} == wanted


def test_ablation_of_an_unknown_name_is_refused():
    assert set(DBOptions.ABLATIONS) == {"none", *OFF}
    with pytest.raises(ssedb.ConfigError, match="ablation='no-luck': use one of none, no-upper"):
        TrainConfig(bonus_options={"ablation": "no-luck"})


@pytest.mark.parametrize("ablation", OFF)
def test_ablation_loss_is_that_of_the_terms_left(ablation):
    bonus, data = (
        make("db", **TINY_OPTIONS, ablation=ablation, alpha1=0.3, alpha2=0.2, alpha3=0.7),
        batch(),
    )
    loss, metrics = bonus.loss(*data)
    weights = {"alpha1": 0.3, "alpha2": -0.2, "alpha3": -0.7} | {
        k: 0.0 for k in OFF[ablation] if k.startswith("alpha")
    }
    names = {"alpha1": "i_upper", "alpha2": "i_pred", "alpha3": "i_nce"}
    expected = sum(weight * metrics[names[name]] for name, weight in weights.items())
    torch.testing.assert_close(loss.detach(), expected)


def test_ablation_of_momentum_alone_lets_gradient_reach_the_target():
    for ablation in ("none", *OFF):
        bonus, data = make("db", **TINY_OPTIONS, ablation=ablation), batch()
        target = bonus.target(data[2])
        assert target.requires_grad == (ablation == "no-nce-no-momentum")
        assert all(p.grad is None for p in bonus.encoder.parameters())
        if target.requires_grad:
            target.sum().backward()
            assert bonus.encoder.trunk.conv1.weight.grad.abs().max() > 0
            torch.testing.assert_close(target, bonus.encoder(bonus.normalize(data[2])))
