"""The runs of a grid file, planned before anything starts."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssedb.config import TrainConfig, bonus_of
from ssedb.errors import ConfigError
from ssedb.noises import noise_class
from ssedb.reading import Damaged, read_table
from ssedb.runs.folder import identity
from ssedb.sweep.grid_file import FIELDS, GridFile


@dataclass(frozen=True)
class Planned:
    """One run of a plan."""

    id: str
    name: str
    config: TrainConfig

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.config.out


@dataclass(frozen=True)
class Grid:
    """Content of a grid file: the runs, and whether those that can be are probed at their end."""

    name: str
    runs: list[Planned]
    probe: bool


def read_grid(
    path: Path, out: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> Grid:
    """Read a grid file and plan its runs.

    Args:
        path: the grid file.
        out: folder for the runs' own folders; `runs/<name>` unless given.
        overrides: replace a setting or the values of an axis; a list, or an option of a bonus,
            makes an axis.
    """
    file = GridFile(path, dict(overrides or {}))
    root = out or Path("runs") / file.name
    runs: dict[str, Planned] = {}
    for point in _points(file):
        try:
            planned = _plan(file, point, root)
        except ConfigError as error:
            raise file.wrong_run(point, error) from None
        # An option that a bonus does not have makes no second run of it, nor does a variant that
        # a noise does not have.
        runs.setdefault(planned.id, planned)
    if not runs:
        raise file.wrong("exclude", "everything is excluded, no run is left")
    return Grid(file.name, _where_they_are(runs, root), file.probe)


def _points(file: GridFile) -> Iterator[dict[str, Any]]:
    """Yield every combination of the axes that is not excluded."""
    unused = list(file.excludes)
    for point in file.points():
        matching = [
            entry
            for entry in file.excludes
            if all(_matches(point[key], wanted) for key, wanted in entry.items())
        ]
        unused = [entry for entry in unused if entry not in matching]
        if matching:
            continue
        yield point
    if unused and not set(file.axes) & set(file.overrides):
        raise file.wrong("exclude", f"{unused[0]!r} matches no run; leave it out")


def _plan(file: GridFile, point: Mapping[str, Any], root: Path) -> Planned:
    """Plan the run of one combination of the axes."""
    values = {**file.settings, **{key: value for key, value in point.items() if key in FIELDS}}
    if (variant := values.get("noise_variant")) and _is_of_another_noise(file, values, variant):
        values["noise_variant"] = ""  # makes no second run of a noise that does not have it
    bonus = bonus_of(values)
    chosen = {
        key: value for key, value in point.items() if key not in FIELDS and key in file.known[bonus]
    }
    config = TrainConfig(**values, bonus_options={**file.options.get(bonus, {}), **chosen})
    own_id = run_id(config)
    others = {
        key: config.noise_variant if key == "noise_variant" else value
        for key, value in point.items()
        if key in FIELDS - {"env", "noise", "bonus", "seed"}
    } | chosen
    words = [
        config.env,
        config.noise,
        config.bonus,
        *(_word(key, value) for key, value in others.items() if value not in ("none", "")),
    ]
    name = re.sub(r"[^\w.@-]+", "_", "-".join([*words, f"s{config.seed}", own_id[:8]]))
    return Planned(own_id, name, dataclasses.replace(config, out=root / name))


def _is_of_another_noise(file: GridFile, values: Mapping[str, Any], variant: Any) -> bool:
    """Tell whether another noise of the grid has a variant, and this one does not."""
    named = [values.get("noise", "none"), *file.axes.get("noise", [])]
    own, *others = (noise_class(str(name)).variants for name in named)
    return variant not in own and any(variant in variants for variants in others)


def run_id(config: TrainConfig) -> str:
    """Return an id that is the same for the same settings, wherever and whenever.

    Numbers count by their value: 1 and 1.0 make the same run.
    """
    settings = {**identity(config), "steps": config.steps}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def id_in(folder: Path, planned: Collection[Planned]) -> str | None:
    """Return the id of the run in a folder; None if it is none of the planned ones.

    Names are compared first: code that a folder names, and the plan does not, is not imported.
    """
    try:
        names = _names(read_table(folder / "config.toml"))
        if names in [_names(vars(run.config)) for run in planned]:
            return run_id(TrainConfig.from_toml(folder / "config.toml"))
    except (ConfigError, Damaged):
        pass
    return None


def _names(settings: Mapping[str, Any]) -> list[Any]:
    """Return the settings that may name code to import."""
    return [settings.get(name) for name in ("env", "noise", "bonus")]


def _where_they_are(runs: Mapping[str, Planned], root: Path) -> list[Planned]:
    """Point planned runs at folders of `root` that hold the same runs under other names.

    Folders are named after axes and hashes; another axis in the file, or another version of
    ssedb, names them otherwise.
    """
    own = {run.folder for run in runs.values()}
    elsewhere: dict[str | None, Path] = {}
    for path in sorted(root.glob("*/config.toml")):
        if path.parent not in own:
            elsewhere.setdefault(id_in(path.parent, runs.values()), path.parent)
    return [
        dataclasses.replace(run, config=dataclasses.replace(run.config, out=elsewhere[run.id]))
        if run.id in elsewhere and not (run.folder / "config.toml").exists()
        else run
        for run in runs.values()
    ]


def _word(key: str, value: Any) -> str:
    if isinstance(value, dict):
        return "-".join(f"{name}-{inner}" for name, inner in value.items())
    return value if isinstance(value, str) else f"{key}-{value}"


def _matches(value: Any, wanted: Any) -> bool:
    return value == wanted or (isinstance(wanted, list) and value in wanted)
