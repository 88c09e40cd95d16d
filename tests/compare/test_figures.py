"""What the figures show is what the tables hold."""

import pytest

pytest.importorskip("matplotlib")

from matplotlib.markers import TICKUP

from ssedb.compare import bars, curves, figures, style
from ssedb.compare.references import MEASURED
from ssedb.compare.results import load_runs
from ssedb.compare.tables import choose_measures
from ssedb.noises import list_noises
from tests.helpers import make_run


@pytest.fixture
def runs(tmp_path):
    for i, bonus in enumerate(("db", "rnd")):
        for noise in ("none", "pixel"):
            for seed in range(2):
                options = {"bonus": bonus, "bonus_options": {}, "noise": noise, "seed": seed}
                make_run(
                    tmp_path / f"{bonus}-{noise}-{seed}",
                    env="breakout",
                    score=10.0 * (i + 1) + 2 * seed,
                    **options,
                )
    return load_runs(tmp_path)


def lines(panel, thin=False):
    """The lines of means, or the thin ones of single runs."""
    drawn = [line for line in panel.lines if len(line.get_xdata()) == curves.POINTS]
    return [line for line in drawn if (line.get_linewidth() < 1) == thin]


def test_learning_curves_draw_the_mean_and_the_random_score(runs):
    figure = curves.learning_curves(runs, "score")
    assert [panel.get_title() for panel in figure.axes] == ["breakout", "breakout, pixel"]
    first = figure.axes[0]
    assert [line.get_ydata()[-1] for line in lines(first)] == pytest.approx([11, 21])
    dotted = [line for line in first.lines if line.get_linestyle() == ":"]
    assert dotted[0].get_ydata()[0] == MEASURED["breakout"].mean
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["db", "rnd", "random agent, measured here"]
    normalised = curves.learning_curves(runs, "human_score").axes[0]
    assert [line.get_ydata()[0] for line in normalised.lines if line.get_linestyle() == ":"] == [0]
    assert len(curves.learning_curves(runs, "score", noise="pixel").axes) == 1
    assert curves.learning_curves(runs, "states_of_mind") is None


def test_learning_curves_leave_out_a_copy_of_a_run(tmp_path):
    for name, seed, score in (("a/first", 0, 10.0), ("a/second", 1, 30.0), ("b/copy", 0, 10.0)):
        make_run(tmp_path / name, env="breakout", score=score, seed=seed)
    panel = curves.learning_curves(load_runs(tmp_path), "score").axes[0]
    assert lines(panel)[0].get_ydata()[-1] == pytest.approx(20)


def test_learning_curves_band_of_a_share_stays_a_share(tmp_path):
    for seed, states in enumerate((0.01, 0.5, 0.99)):
        make_run(tmp_path / str(seed), seed=seed, states=states)
    panel = curves.learning_curves(load_runs(tmp_path), "states_share").axes[0]
    heights = panel.collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (0, 1)


def test_learning_curves_of_two_runs_draw_them_instead_of_a_band(tmp_path):
    for seed, states in enumerate((0.3, 0.5)):
        make_run(tmp_path / str(seed), seed=seed, states=states)
    panel = curves.learning_curves(load_runs(tmp_path), "states_share").axes[0]
    assert [line.get_ydata()[-1] for line in lines(panel, thin=True)] == pytest.approx([0.3, 0.5])
    heights = panel.collections[0].get_paths()[0].vertices[:, 1]
    assert heights.max() == pytest.approx(0.4)  # the mean's line is all that is filled


def test_figures_of_a_share_begin_at_zero(tmp_path):
    for bonus, states in (("db", 0.5), ("rnd", 0.7)):
        own = {"bonus": bonus, "bonus_options": {}}
        for seed in range(2):
            for noise in ("none", "pixel"):
                folder = tmp_path / f"{bonus}-{noise}-{seed}"
                make_run(folder, seed=seed, noise=noise, states=states + seed / 100, **own)
    runs = load_runs(tmp_path)
    drawn = [bars.by_condition(runs, "states_share"), bars.aggregates(runs, "states_share")]
    assert {panel.get_xlim()[0] for figure in drawn for panel in figure.axes} == {0}
    drawn = [
        curves.learning_curves(runs, "states_share"),
        curves.noise_curves(runs, "states_share", "pixel"),
        curves.sample_efficiency(runs, "states_share"),
    ]
    assert {panel.get_ylim()[0] for figure in drawn for panel in figure.axes} == {0}


def test_noise_figure_draws_noise_against_none(runs):
    panel = curves.noise_curves(runs, "score", "pixel").axes[0]
    assert [line.get_linestyle() for line in lines(panel)] == ["-", "--", "-", "--"]
    thin = [line.get_linestyle() for line in lines(panel, thin=True)]  # two runs of each
    assert thin == ["-", "-", "--", "--"] * 2
    assert curves.noise_curves(runs, "score", "sticky") is None


def test_condition_figure_shows_every_run(runs):
    figure = bars.by_condition(runs, "score")
    panel = figure.axes[0]
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {"no noise", "pixel"}
    ticks = [list(line.get_xdata()) for line in panel.lines if line.get_marker() == TICKUP]
    assert ticks == [[10, 12], [20, 22]] * 2
    assert "ticks above: single runs" in panel.get_xlabel().replace("\n", " ")
    marks = [
        float(line.get_xdata()[0]) for line in panel.lines if line.get_marker() in style.MARKERS
    ]
    assert sorted(marks) == [11, 11, 21, 21]  # the means
    assert [text.get_text() for text in panel.get_yticklabels()] == ["db", "rnd"]


@pytest.mark.parametrize("key", ["random_score", "noise_explained"])
def test_condition_figure_of_two_games_keeps_its_labels_apart(tmp_path, key):
    for env in ("breakout", "ms_pacman"):
        probe = {"noise": "random-box", "noise_explained": 0.1, "fresh": False}
        make_run(tmp_path / env, env=env, score=3.0, probe=probe)
    figure = bars.by_condition(load_runs(tmp_path), key)
    figure.draw_without_rendering()
    left, right = (panel.xaxis.label.get_window_extent() for panel in figure.axes)
    assert left.x1 < right.x0
    assert left.x0 > 0
    assert right.x1 < figure.bbox.x1


def test_noise_figure_has_room_for_its_label(tmp_path):
    for noise in ("none", "random-box"):
        make_run(tmp_path / noise, env="breakout", noise=noise, score=3.0)
    figure = curves.noise_curves(load_runs(tmp_path), "score", "random-box")
    figure.draw_without_rendering()
    (label,) = (t for t in figure.texts if "dashed" in t.get_text())
    extent = label.get_window_extent()
    assert 0 < extent.y0 < extent.y1 < figure.bbox.y1


def test_improvement_and_aggregate_figures_are_drawn(tmp_path):
    for bonus, score in (("db", 10.0), ("rnd", 20.0)):
        for seed in range(3):
            options = {"bonus": bonus, "bonus_options": {}, "seed": seed}
            make_run(tmp_path / f"{bonus}-{seed}", env="breakout", score=score + seed, **options)
    runs = load_runs(tmp_path)
    panel = bars.improvement(runs, "score").axes[0]
    assert [text.get_text() for text in panel.get_yticklabels()] == ["rnd"]
    assert "P(db better than ...)" in panel.get_xlabel()
    assert panel.lines[0].get_xdata()[0] == 0
    titles = [axes.get_title() for axes in bars.aggregates(runs, "human_score").axes]
    assert titles == ["IQM", "mean", "median", "optimality gap"]
    assert len(bars.profiles(runs, "score").axes[0].lines) == 2
    assert len(curves.sample_efficiency(runs, "score").axes[0].lines) == 2


def test_figures_with_intervals_over_few_runs_are_left_out(runs, tmp_path):
    assert bars.profiles(runs, "score") is None  # two runs of each method in two tasks
    assert bars.improvement(runs, "score") is None
    for bonus in ("db", "rnd"):
        options = {"bonus": bonus, "bonus_options": {}}
        make_run(tmp_path / f"{bonus}-alien", env="alien", score=3.0, **options)
    more = load_runs(tmp_path)  # a third task
    assert bars.profiles(more, "score") is not None
    assert bars.improvement(more, "score") is not None


def test_aggregate_figure_of_one_method_is_left_out(runs):
    alone = [run for run in runs if run.method == "db"]
    assert bars.aggregates(alone, "score") is None


def test_curves_of_a_score_that_is_always_zero_are_left_out(tmp_path):
    for seed in range(2):
        make_run(tmp_path / "runs" / str(seed), score=0.0, seed=seed)
    runs = load_runs(tmp_path / "runs")

    def drawn(*asked):
        paths = figures.write_figures(runs, tmp_path / "out", *choose_measures(runs, asked))
        return {path.stem for path in paths}

    usual = drawn()
    assert "curves-states_share" in usual
    assert not any("score" in name for name in usual)
    assert {"curves-score", "measure-score"} <= drawn("score")


def test_improvement_figure_is_of_the_recommended_bonus(tmp_path):
    for bonus in ("db", "db-ensemble"):
        options = {"bonus": bonus, "bonus_options": {}}
        for seed in range(3):
            folder = tmp_path / f"{bonus}-{seed}"
            make_run(folder, env="breakout", score=len(bonus), seed=seed, **options)
    panel = bars.improvement(load_runs(tmp_path), "score", "pixel").axes[0]
    assert [text.get_text() for text in panel.get_yticklabels()] == ["db"]
    first, second = panel.get_xlabel().splitlines()
    assert first == "P(db-ensemble better than ...)"
    assert second.endswith("under pixel")


def test_styles_tell_many_methods_apart():
    methods = [f"m{i}" for i in range(20)] + ["none"]
    styles = style.method_styles(methods).values()
    assert len({(each["color"], each["ls"]) for each in styles}) == 21


def test_noises_have_looks_of_their_own():
    few, many = (style.noise_styles(n) for n in (["pixel", "mine"], [*list_noises(), "a", "b"]))
    assert few["pixel"] == many["pixel"]
    assert len({(each["color"], each["marker"]) for each in many.values()}) == len(many)
    assert not {each["color"] for each in many.values()} & {*style.COLOURS, style.GRAY}
    assert set(list_noises()) <= set(style.NOISE_LOOKS)


def test_styles_of_known_methods_are_the_same_in_every_figure():
    few, many = (style.method_styles(m) for m in (["mine", "rnd"], ["db", "rnd", "none", "mine"]))
    assert few["rnd"] == many["rnd"]
    assert few["mine"] not in (few["rnd"], many["db"])


def test_ablation_figure_has_four_panels(tmp_path):
    import json

    for ablation in ("none", "no-upper"):
        for seed in range(2):
            folder = make_run(
                tmp_path / f"{ablation}-{seed}",
                env="alien",
                seed=seed,
                bonus_options={"ablation": ablation},
            )
            rows = [
                {"steps": s, "score": s, "i_upper": 1.0, "i_pred": -s, "i_nce": -256 / s}
                for s in (64, 128)
            ]
            if seed:
                rows = [{**row, "i_nce_chance": -3.0} for row in rows]
            (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    figure = curves.ablation_panels(load_runs(tmp_path), "alien", "none")
    titles = [panel.get_title() for panel in figure.axes]
    assert titles == [
        "score, mean of the last 100 episodes",
        "I_upper: nats in z",
        "I_pred: log-likelihood of the next state",
        "I_nce: telling the next state from others",
    ]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["db", "db no-upper"]
    assert lines(figure.axes[2])[0].get_ydata()[-1] == -128
    nce = figure.axes[3]
    assert lines(nce)[0].get_ydata()[[0, -1]].tolist() == [-4, -2]
    assert [line.get_ydata()[0] for line in nce.lines if line.get_linestyle() == ":"] == [-3]
    assert nce.get_ylim() == pytest.approx((-3.2, -1.8))  # what a young model gets is cut off


def test_learning_curves_of_a_single_update_draw_a_point(tmp_path):
    for seed, score in enumerate((10.0, 30.0)):
        make_run(tmp_path / str(seed), env="breakout", seed=seed, score=score, steps=64)
    panel = curves.learning_curves(load_runs(tmp_path), "score").axes[0]
    (point,) = [line for line in panel.lines if line.get_marker() == "o"]
    assert (list(point.get_xdata()), list(point.get_ydata())) == ([64], [20])
