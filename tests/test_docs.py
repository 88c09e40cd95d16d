"""The docs name things that exist, and their examples run."""

import importlib
import re
from pathlib import Path

import pytest
import torch

import ssedb
import ssedb.bonuses
import ssedb.noises
from ssedb.cli.train import parse_train

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def resolve(dotted: str) -> object:
    """Imports `ssedb.module.Class.method`."""
    parts = dotted.split(".")
    for split in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:split]))
        except ModuleNotFoundError:
            continue
        for name in parts[split:]:
            found = getattr(found, name)
        return found
    raise AssertionError(dotted)


def test_reliability_page_names_tests_that_exist():
    text = (ROOT / "docs" / "reliability.md").read_text()
    names = re.findall(r"`(test_\w+\.py|tests/[\w/]+\.py)`", text)
    assert len(names) > 20
    for name in names:
        assert (ROOT / (name if "/" in name else f"tests/faults/{name}")).is_file(), name


def test_equations_page_resolves():
    text = (ROOT / "docs" / "equations.md").read_text()
    functions = re.findall(r"`(ssedb\.[\w.]+)`", text)
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(functions) >= 12
    assert len(tests) >= 12
    for dotted in functions:
        assert callable(resolve(dotted))
    for file, name in tests:
        assert f"def {name}(" in (ROOT / file).read_text()


def test_equations_page_has_a_row_for_every_equation():
    text = (ROOT / "docs" / "equations.md").read_text()
    for label in (
        "paraf",
        ":predictive_lower_bound",
        "nceh",
        "nce",
        "upperbound",
        "db-loss",
        "reward-practice",
    ):
        assert f"| eq:{label} |" in text
    labelled = re.findall(r"\[(eq:[\w:-]+)\]", (ROOT / "ssedb" / "objectives.py").read_text())
    assert len(labelled) >= 6
    for label in labelled:
        assert f"| {label} |" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_dotted_names_exist(page):
    for dotted in re.findall(r"`(ssedb\.[a-z][\w.]*)[`(]", page.read_text()):
        assert resolve(dotted) is not None


def test_readme_is_short_and_its_example_runs():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) < 120
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    assert code.count("20_480") == 1
    namespace: dict = {}
    with torch.random.fork_rng():
        exec(code.replace("20_480", "512"), namespace)
    assert namespace["model"].num_timesteps == 512
    assert namespace["model"].intrinsic_reward is not None


def test_readme_names_the_test_command_that_ci_runs():
    commands = re.findall(r"^    (make [a-z-]+)", (ROOT / "README.md").read_text(), re.M)
    assert commands == ["make demo", "make test"]
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text()


def test_citation_names_the_version_of_the_package():
    text = (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^version: (.*)$", text, re.M) == [ssedb.__version__]


def test_changelog_begins_with_what_is_unreleased():
    headings = re.findall(r"^(##+) (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0] == ("##", "Unreleased")
    parts = {name for level, name in headings if level == "###"}
    assert parts <= {"Added", "Changed", "Fixed", "Removed"}


def test_read_metrics_page_examples_run(tmp_path, monkeypatch):
    from tests.toy import tiny_config

    monkeypatch.chdir(tmp_path)
    ssedb.train(tiny_config(Path("runs/first"), steps=256, obs_norm_steps=50))
    text = (ROOT / "docs" / "read-metrics.md").read_text()
    namespace: dict = {}
    for code in re.findall(r"```python\n(.*?)```", text, re.S):
        exec(code, namespace)
    assert namespace["rows"][0]["steps"] == 256
    assert namespace["steps"].tolist() == [256]
    assert namespace["env"].num_envs == 8
    assert namespace["actions"].shape == (8,)
    assert len(namespace["scores"]) == 4


def test_run_folder_page_example_is_the_policy(tmp_path, monkeypatch):
    from ssedb.runs.export import export
    from tests.toy import tiny_config

    monkeypatch.chdir(tmp_path)
    ssedb.train(tiny_config(Path("runs/alien"), steps=256, obs_norm_steps=50))
    export(Path("runs/alien"))
    text = (ROOT / "docs" / "run-folder.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    namespace: dict = {}
    exec(code, namespace)
    agent = ssedb.load("runs/alien", "cpu")
    frames = torch.randint(256, (3, *agent.obs_shape), dtype=torch.uint8)
    logits, values = namespace["policy"](frames)
    with torch.no_grad():
        expected = agent.policy(frames)
    torch.testing.assert_close(logits, expected[0])
    torch.testing.assert_close(values.squeeze(-1), expected[1])


def test_resume_page_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    text = (ROOT / "docs" / "resume.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(code, namespace)
    assert namespace["result"].steps == 2048


def test_documented_bonus_is_a_bonus(tmp_path, monkeypatch):
    code = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "new-bonus.md").read_text(), re.S)[0]
    (tmp_path / "brightness_of_the_docs.py").write_text(code)
    monkeypatch.setattr(ssedb.bonuses, "__path__", [*ssedb.bonuses.__path__, str(tmp_path)])
    assert "brightness-of-the-docs" in ssedb.list_bonuses()
    bonus = ssedb.make_bonus("brightness-of-the-docs", (4, 36, 36), 2, scale=2.0)
    obs, actions = (
        torch.full((3, 4, 36, 36), 255, dtype=torch.uint8),
        torch.zeros(3, dtype=torch.int64),
    )
    assert bonus.reward(obs, actions, obs).tolist() == pytest.approx([2.0] * 3)
    bonus.loss(obs, actions, obs)[0].backward()
    of_vectors = ssedb.make_bonus("brightness-of-the-docs", (5,), 2)
    assert of_vectors.reward(torch.ones(3, 5), actions, torch.ones(3, 5)).shape == (3,)
    config, _ = parse_train(["--bonus", "brightness-of-the-docs", "--scale", "3"])
    assert config.bonus_options == {"scale": 3.0}
    monkeypatch.syspath_prepend(tmp_path)
    config, _ = parse_train(["--bonus", "brightness_of_the_docs:Brightness", "--scale", "3"])
    assert config.bonus_options == {"scale": 3.0}
    from ssedb.testing.conformance import check_bonus

    assert [
        r.why for r in check_bonus("brightness_of_the_docs:Brightness") if r.outcome == "fail"
    ] == []


def test_new_bonus_page_loop_lowers_the_loss():
    text = (ROOT / "docs" / "new-bonus.md").read_text()
    loop = re.findall(r"```python\n(.*?)```", text, re.S)[1]
    namespace: dict = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(loop, namespace)
    assert namespace["reward"].shape == (8,)
    assert namespace["loss"] < 5  # it begins at 10


def test_noises_page_example_keeps_its_contract(tmp_path, monkeypatch):
    from ssedb.noises import list_noises
    from ssedb.testing.noises import CHECKS, check_noise

    text = (ROOT / "docs" / "noises.md").read_text()
    checks = re.findall(r"^\| `(\w+)` \|", text.partition("## Is this noise right?")[2], re.M)
    assert checks == [check.__name__ for check in CHECKS]
    (tmp_path / "power_cut.py").write_text(re.findall(r"```python\n(.*?)```", text, re.S)[0])
    monkeypatch.setattr(ssedb.noises, "__path__", [*ssedb.noises.__path__, str(tmp_path)])
    assert "power-cut" in list_noises()
    env = ssedb.make_env("rooms-small", 64, noise="power-cut", strength=20.0)
    assert env.reset().any()
    assert not env.step(torch.zeros(64, dtype=torch.int64)).frames.any()
    monkeypatch.syspath_prepend(tmp_path)
    assert ssedb.TrainConfig(noise="power_cut:PowerCut").noise == "power_cut:PowerCut"
    results = check_noise("power_cut:PowerCut")
    assert [result.why for result in results if result.outcome != "pass"] == []


def test_bonuses_page_has_a_row_for_every_bonus():
    text = (ROOT / "docs" / "bonuses.md").read_text()
    assert sorted(re.findall(r"^\| \[`([\w-]+)`\]", text, re.M)) == ssedb.list_bonuses()


def test_results_page_links_every_study():
    index = (ROOT / "docs" / "results.md").read_text()
    studies = [page.name for page in PAGES if page.name.startswith("results-")]
    assert len(studies) >= 2
    for study in studies:
        assert f"]({study})" in index


def test_noises_page_lists_every_noise():
    from ssedb.noises import list_noises

    text = (ROOT / "docs" / "noises.md").read_text()
    for noise in list_noises():
        assert f"`{noise}`" in text


def test_fidelity_page_lists_every_decision():
    from ssedb.config import FIDELITIES
    from ssedb.options import DBOptions

    text = (ROOT / "docs" / "fidelity.md").read_text()
    for name in {**FIDELITIES["paper"], **DBOptions.FIDELITIES["paper"]}:
        assert f"| `{name}` |" in text


def test_metrics_pages_list_what_is_logged(tmp_path):
    from ssedb.runs.metrics import read_metrics
    from tests.toy import tiny_config

    ssedb.train(tiny_config(tmp_path / "run", steps=256, obs_norm_steps=50))
    pages = ("metrics.md", "rooms.md")
    text = "".join((ROOT / "docs" / page).read_text() for page in pages)
    for key in read_metrics(tmp_path / "run")[0]:
        assert key == "time" or f"`{key}`" in text


def test_conformance_page_lists_every_check_and_its_example_runs():
    from ssedb.testing.conformance import CHECKS

    text = (ROOT / "docs" / "conformance.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, re.M) == [check.__name__ for check in CHECKS]
    exec(re.findall(r"```python\n(.*?)```", text, re.S)[0], {})


INTEGRATIONS = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "integrations.md").read_text(), re.S
)


@pytest.mark.parametrize("number", range(5))
def test_integrations_page_examples_run(number, tmp_path, monkeypatch):
    assert len(INTEGRATIONS) == 5
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng():
        exec(INTEGRATIONS[number], {})
