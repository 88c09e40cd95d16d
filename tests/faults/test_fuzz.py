"""Any flags, and any bytes in the files of runs and grids: exit code 0 or 2, and no traceback."""

import contextlib
import io
import json
import shutil
import string
import tomllib

import pytest
import tomli_w
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ssedb import cli
from ssedb.cli.parsing import setting_names
from ssedb.config import TrainConfig
from ssedb.errors import ConfigError
from ssedb.options import DBOptions
from ssedb.sweep.scheduler import Outcome
from tests.compare.test_results import make_run
from tests.sweep.grids import TOY

WORDS = [
    "", " ", "0", "-1", "1", "3", "1e400", "nan", "-inf", "1_0", "0x10", "9" * 5000, "true", "none",
    "auto", "db", "rnd", "a:b", ":", ".x:y", "os:path", "tests.toy:x", "rooms-small", "rooms@9",
    "rooms@" + "9" * 30, "ALE/Pong-v5", "CartPole-v1", "../..", "/dev/null", "/dev/null/x", "~",
    "*", "a=b", "=", "x=[1", "seed=[0,1]", "bonus=3", "steps=" + "[" * 3000, "\x1b[2J", "\u202eboo",
    "name\nline", "nul", "ü" * 200, "--", "-h", "cuda:99", "{}", "[]", "$x$", "%s", "'", '"', "\\",
]  # fmt: skip
"""Values that have broken command lines."""
FIELDS = sorted({*setting_names(TrainConfig), *setting_names(DBOptions)} - {"bonus_options"})
FLAGS = {
    "train": ["resume", *FIELDS],
    "eval": ["episodes", "video", "seed", "device"],
    "demo": ["env", "noise", "steps", "seeds", "out"],
    "sweep": ["out", "set", "jobs", "device", "dry-run", "minutes", "whole", "retries", "ray"],
    "stats": ["out", "measures", "no-figures"],
    "analyze probe": ["fresh", "noise", "transitions", "draws", "device"],
    "analyze spikes": ["seed", "steps", "device"],
    "analyze tsne": ["seed", "steps", "compare"],
    "check": ["device"],
    "theory": ["parts", "out", "quick", "seed"],
    "report": ["out", "single-file", "episodes", "title"],
    "bench": ["env", "noise", "preset", "updates", "num-envs"],
    "list": [],
    "fly": [],
}
values = st.sampled_from(WORDS) | st.text(max_size=12).filter(lambda text: "\x00" not in text)
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(10**400)
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner)
)
tomls = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats()
    | st.sampled_from(WORDS).filter(lambda word: "\x00" not in word)
    | st.text(string.printable, max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=4,
)
EXAMPLES = [20, pytest.param(1500, marks=pytest.mark.slow)]


def fuzz(examples, **strategies):
    """Decorate a check that is called with so many examples, the same ones in the short version."""

    def decorate(check):
        short = settings(
            max_examples=examples,
            derandomize=examples < 100,
            database=None,
            deadline=None,
            phases=[Phase.generate],  # a failing example may be long, and shrinking takes minutes
            suppress_health_check=list(HealthCheck),
        )
        return short(given(**strategies)(check))

    return decorate


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A command line whose long work is left out, in a folder of its own."""

    def stop(*args, **kwargs):
        raise ConfigError("far enough")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ssedb.cli.train.RunFolder.create", stop)
    monkeypatch.setattr("ssedb.runs.loop.train_in", stop)
    monkeypatch.setattr("ssedb.sweep.estimate.print_estimate", lambda *args: None)
    monkeypatch.setattr("ssedb.sweep.run.run_sweep", lambda *args, **kwargs: Outcome())
    monkeypatch.setattr("ssedb.sweep.cluster.connected", stop)
    monkeypatch.setattr("ssedb.cli.check.print_checks", lambda *args: True)
    for name in ("bench.measure_rates", "demo.run_demo", "theory.report.run_theory"):
        monkeypatch.setattr(f"ssedb.{name}", stop)

    def run(*args):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                code = cli.main(args)
            except SystemExit as end:  # of --help
                code = end.code
        assert code in (0, 2), (args, said.getvalue())
        assert "Traceback" not in said.getvalue()
        lines = said.getvalue().splitlines()
        assert code == 0 or lines[-1].startswith("ssedb: "), lines
        assert "\x1b" not in said.getvalue()
        return code

    return run


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("command", FLAGS)
def test_fuzz_flags_end_with_0_or_2(run, tmp_path, command, examples):
    make_run(tmp_path / "runs" / "run")
    flags = st.sampled_from([f"--{flag}" for flag in FLAGS[command]] or ["--help"])
    words = st.lists(flags | values, max_size=5)
    few = examples if command == "train" else examples // 6

    @fuzz(few, first=st.sampled_from(["runs", "runs/run", "nowhere"]) | values, words=words)
    def check(first, words):
        leading = [] if command in ("train", "bench", "demo", "theory") else [first]
        run(*command.split(), *leading, *words)
        for path in tmp_path.iterdir():  # what a command wrote is no input of the next one
            if path.name != "runs":
                shutil.rmtree(path, ignore_errors=True)

    check()


@pytest.mark.parametrize("examples", EXAMPLES)
def test_fuzz_settings_of_a_run_end_with_0_or_2(run, tmp_path, examples):
    make_run(tmp_path / "runs" / "whole", seed=1)
    folder = make_run(tmp_path / "runs" / "run")
    config = TrainConfig.from_toml(folder / "config.toml")
    whole = tomllib.loads(config.to_toml())
    changes = st.dictionaries(
        st.sampled_from([*whole, "none_options", "sticky", "flux"]), tomls, max_size=3
    )

    @fuzz(examples, changes=changes)
    def check(changes):
        (folder / "config.toml").write_text(tomli_w.dumps({**whole, **changes}))
        assert run("stats", "runs", "--no-figures") == 0
        assert run("report", "runs", "--episodes", "0") == 0
        assert run("eval", "runs/run") == 2
        assert run("train", "--resume", "runs/run") == 2
        assert run("analyze", "probe", "runs/run") == 2

    check()


NAMES = ["config.toml", "metrics.jsonl", "maps.jsonl", "summary.json", "probe.json", "origin.json"]


@pytest.mark.parametrize("examples", EXAMPLES)
def test_fuzz_files_of_a_run_leave_the_report_and_the_other_runs(run, tmp_path, examples):
    whole = make_run(tmp_path / "whole", probe={"bonus_noise_share": 0.5, "fresh": False})
    for name in NAMES:
        if not (whole / name).exists():
            (whole / name).write_text('{"steps": 64, "code": "a", "later": ["b"], "visits": [1]}\n')
    make_run(tmp_path / "runs" / "other", seed=1)
    folder, plan = tmp_path / "runs" / "run", tmp_path / "runs" / "plan.json"
    spots = st.floats(0, 1, exclude_max=True)
    byte_edits = st.tuples(st.sampled_from(["flip", "cut", "insert"]), spots, st.binary(max_size=4))
    entry = st.dictionaries(st.sampled_from(["folder", "config", "steps", "finished"]), anything)
    plans = anything | st.fixed_dictionaries({"runs": anything | st.lists(entry, max_size=2)})

    @fuzz(
        examples,
        name=st.sampled_from([*NAMES, "failure.json"]),
        edit=byte_edits | anything,
        planned=plans,
    )
    def check(name, edit, planned):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        data = (folder / name).read_bytes() if (folder / name).exists() else b'{"error": "x"}'
        if isinstance(edit, tuple):
            kind, spot, insert = edit
            at = int(spot * len(data))
            change = {"cut": b"", "flip": bytes([data[at] ^ 1 << int(8 * spot)]), "insert": insert}
            rest = b"" if kind == "cut" else data[at + (kind == "flip") :]
            data = data[:at] + change[kind] + rest
        else:
            data = json.dumps(edit).encode() + b"\n"
        (folder / name).write_bytes(data)
        plan.write_text(json.dumps(planned))
        assert run("stats", "runs", "--no-figures") == 0
        assert run("report", "runs", "--episodes", "0") == 0
        assert '"status": "finished"' in (tmp_path / "runs/stats/stats.json").read_text()

    check()


@pytest.mark.parametrize("examples", EXAMPLES)
def test_fuzz_grid_files_end_with_0_or_2(run, tmp_path, examples):
    lines = TOY.splitlines()
    (tmp_path / "runs" / "toy").mkdir(parents=True)
    key = st.sampled_from(
        ["name", "probe", "settings", "axes", "exclude", "bonus_options", *FIELDS]
    )
    line = st.builds(
        lambda key, value: tomli_w.dumps({key: value}), key, tomls | st.lists(tomls, max_size=3)
    )
    edits = st.lists(st.tuples(st.integers(0, len(lines) - 1), line | values), max_size=3)

    @fuzz(examples, edits=edits, override=st.lists(values, max_size=2), dry=st.booleans())
    def check(edits, override, dry):
        text = list(lines)
        for at, line in edits:
            text[at] = line
        (tmp_path / "grid.toml").write_text("\n".join(text), errors="surrogatepass")
        flags = [word for word in override if not word.startswith("-")]
        run("sweep", "grid.toml", *["--dry-run"] * dry, *(["--set", *flags] if flags else []))

    check()
