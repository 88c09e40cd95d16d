"""The wheel by itself, in a clean environment that has its core requirements and no extra."""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
TRAIN = (
    "train --preset rooms --env rooms-tiny --bonus rnd --device cpu --out run "
    "--steps 256 --num-envs 8 --rollout-steps 32 --obs-norm-steps 64 --bonus-epochs 1"
)
MISSING = {
    "report run": "ssedb[report]",
    "analyze probe run --noise random-box": "ssedb[report]",
    "theory": "ssedb[report]",
    "eval run --video": "ssedb[report]",
    "eval run --stills 2": "ssedb[report]",
    "train --wandb --out other": "ssedb[wandb]",
    "export run": "ssedb[export]",
    "sweep grid.toml --ray local": "ssedb[ray]",
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Return the folder of a clean environment with a trained run in it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT / "ssedb", source / "ssedb", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(folder), str(source)]
    subprocess.run([*pip, *build], check=True)
    venv.create(folder / "env", with_pip=False)
    python = folder / "env" / "bin" / "python"
    (wheel,) = folder.glob("ssedb-*.whl")
    install = ["--python", str(python), "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([*pip, *install], check=True)
    (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    link_requirements(packages)
    (folder / "grid.toml").write_text('[settings]\nenv = "rooms-tiny"\n[axes]\nseed = [0]\n')
    trained = ssedb(folder, TRAIN)
    assert trained.returncode == 0, trained.stderr
    return folder


def link_requirements(packages: Path) -> None:
    """Link to what the installed wheel requires, and what that requires, and nothing else."""
    wheel = Distribution.at(next(packages.glob("ssedb-*.dist-info")))
    names = set(required(wheel))
    waiting = list(names)
    while waiting:
        more = set(required(distribution(waiting.pop()))) - names
        names |= more
        waiting += more
    for name in names:
        found = distribution(name)
        for top in {Path(file).parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(str(found.locate_file(top))))


def required(package: Distribution) -> Iterator[str]:
    for line in package.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement.name.lower()


def ssedb(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command with nothing of this checkout in sight."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
    return subprocess.run(
        [folder / "env" / "bin" / "ssedb", *command.split()],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_wheel_without_extras_trains_a_run(installed):
    assert (installed / "run" / "summary.json").exists()
    assert (installed / "run" / "metrics.jsonl").read_text().count("\n") == 1


@pytest.mark.parametrize("command", MISSING)
def test_wheel_without_an_extra_names_it_in_one_line(installed, command):
    said = ssedb(installed, command)
    assert said.returncode == 2
    assert f"pip install '{MISSING[command]}'" in said.stderr
    assert len(said.stderr.strip().splitlines()) == 1


def test_wheel_without_report_makes_tables_and_names_the_extra_for_figures(installed):
    said = ssedb(installed, "stats run")
    assert said.returncode == 0
    assert "no figures" in said.stdout.splitlines()[-1]
    assert "pip install 'ssedb[report]'" in said.stdout.splitlines()[-1]


def test_wheel_holds_the_files_that_are_not_python(installed):
    (package,) = (installed / "env" / "lib").glob("python*/site-packages/ssedb")
    for pattern in ("py.typed", "report/static/*", "compare/*_references.json"):
        expected = {path.name for path in (ROOT / "ssedb").glob(pattern)}
        assert expected
        assert {path.name for path in package.glob(pattern)} == expected
