"""A grid file, checked before anything starts: shared settings, and axes that are combined."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from ssedb.config import TrainConfig
from ssedb.errors import ConfigError
from ssedb.options import options_class
from ssedb.reading import Damaged, read_table
from ssedb.runs.folder import NOT_OF_THE_RUN
from ssedb.validate import plain

FIELDS = {f.name for f in dataclasses.fields(TrainConfig)} - {"out", "bonus_options"}
LISTS = {name for name, hint in get_type_hints(TrainConfig).items() if get_origin(hint) is tuple}
"""Settings that are lists themselves."""


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


SHAPES: dict[str, type] = {
    "name": str,
    "probe": bool,
    "settings": dict,
    "axes": dict,
    "bonus_options": dict,
    "exclude": list,
}
"""The keys of a grid file."""


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
    overrides = dict(overrides or {})
    file = _File(path, overrides)
    settings, axes = file.table("settings"), file.table("axes")
    for key, value in overrides.items():
        if key in axes or key not in FIELDS or (isinstance(value, list) and key not in LISTS):
            settings.pop(key, None)
            axes[key] = value if isinstance(value, list) else [value]
        else:
            settings[key] = value
    if not settings and not axes:
        raise ConfigError(
            f"{path} has no [settings] and no [axes]; see experiments/ for grid files"
        )
    options, excludes = file.table("bonus_options"), file.values.get("exclude", [])
    known = file.check(settings, axes, options, excludes)
    name = file.values.get("name", path.stem)
    if name in ("", ".", "..") or "/" in name or not name.isprintable():
        raise file.wrong("name", f"{name!r} must name a folder under runs/; use letters, or --out")
    root = out or Path("runs") / name
    runs: dict[str, Planned] = {}
    unused = list(excludes)
    for combination in itertools.product(*axes.values()):
        point = dict(zip(axes, combination, strict=True))
        matching = [
            entry
            for entry in excludes
            if all(_matches(point[key], wanted) for key, wanted in entry.items())
        ]
        unused = [entry for entry in unused if entry not in matching]
        if matching:
            continue
        try:
            planned = _plan(settings, point, options, known, root)
        except ConfigError as error:
            key = str(error).partition("=")[0]
            if key in overrides or key in settings:
                raise ConfigError(f"{file.where(key)}{error}") from None
            where = ", ".join(f"{key}={value}" for key, value in point.items())
            raise ConfigError(
                f"{path}, the run with {where or 'these settings'}: {error}"
            ) from None
        runs.setdefault(
            planned.id, planned
        )  # an option that a bonus does not have makes no second run of it
    if unused and not set(axes) & set(overrides):
        raise file.wrong("exclude", f"{unused[0]!r} matches no run; leave it out")
    if not runs:
        raise file.wrong("exclude", "everything is excluded, no run is left")
    return Grid(name, _where_they_are(runs, root), file.values.get("probe", False))


class _File:
    """A grid file as it stands, and complaints that name the key and its line."""

    def __init__(self, path: Path, overrides: Mapping[str, Any]) -> None:
        self.path, self.overrides = path, overrides
        try:
            self.text = path.read_text(encoding="utf-8")
            self.values = tomllib.loads(self.text)
        except OSError as error:
            raise ConfigError(
                f"cannot read {path}: {error.strerror}; name a grid file (experiments/*.toml)"
            ) from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{path} is not TOML: {error}") from None
        for key, value in self.values.items():
            if key not in SHAPES:
                raise self.wrong(key, f"there is no such key; use {', '.join(SHAPES)}")
            if not isinstance(value, SHAPES[key]):
                words = {
                    dict: "a table",
                    list: "a list of tables",
                    bool: "true or false",
                    str: "text",
                }
                raise self.wrong(key, f"must be {words[SHAPES[key]]}, not {value!r}")

    def table(self, key: str) -> dict[str, Any]:
        return dict(self.values.get(key, {}))

    def wrong(self, key: str, said: str) -> ConfigError:
        return ConfigError(f"{self.where(key)}{key}: {said}")

    def where(self, key: str) -> str:
        """Name the source of a setting: the command line, or the file and its line."""
        if key in self.overrides:
            return "" if key == "device" else "--set "
        return f"{self.path}, {_line_of(self.text, key)}"

    def check(self, settings: Any, axes: Any, options: Any, excludes: Any) -> dict[str, set[str]]:
        """Raise ConfigError for an unknown name; return the options of each bonus of the grid."""
        for key in settings:
            if key not in FIELDS:
                raise self.wrong(
                    key,
                    "a run has no such setting; see `ssedb train --help` "
                    "(options go by bonus_options)",
                )
        for key, values in axes.items():
            if not isinstance(values, list) or not values:
                raise self.wrong(key, f"an axis is a list of values, not {values!r}")
            if len({repr(value) for value in values}) < len(values):
                raise self.wrong(key, f"a value is there twice in {values!r}")
            if key in NOT_OF_THE_RUN:
                raise self.wrong(
                    key,
                    f"changes no result, so {values!r} makes no different runs; "
                    "set one value, as a setting",
                )
            if key in settings:
                raise self.wrong(key, "is both a setting and an axis; leave one out")
        bonuses = [
            str(bonus) for bonus in axes.get("bonus", [settings.get("bonus", TrainConfig().bonus)])
        ]
        for bonus, given in options.items():
            if bonus not in bonuses and "bonus" in self.overrides:
                continue  # the command line has left it out
            if bonus not in bonuses or not isinstance(given, dict):
                raise self.wrong(
                    bonus,
                    f"bonus_options holds a table for a bonus of the grid ({', '.join(bonuses)})",
                )
        known = {bonus: self._options_of(bonus) for bonus in bonuses}
        for key in axes:
            if key not in FIELDS and not any(key in names for names in known.values()):
                raise self.wrong(
                    key, "is neither a setting of a run nor an option of one of the grid's bonuses"
                )
        for entry in excludes:
            if not isinstance(entry, dict) or not entry or not set(entry) <= set(axes):
                raise self.wrong(
                    "exclude", f"{entry!r} must name values of axes ({', '.join(axes)})"
                )
        return known

    def _options_of(self, bonus: str) -> set[str]:
        try:
            return {f.name for f in dataclasses.fields(options_class(bonus))}
        except ConfigError as error:
            raise self.wrong("bonus", str(error)) from None


def _plan(
    settings: Mapping[str, Any],
    point: Mapping[str, Any],
    options: Mapping[str, Any],
    known: Mapping[str, set[str]],
    root: Path,
) -> Planned:
    values = {**settings, **{key: value for key, value in point.items() if key in FIELDS}}
    bonus = values.get("bonus", TrainConfig().bonus)
    chosen = {
        key: value for key, value in point.items() if key not in FIELDS and key in known[bonus]
    }
    config = TrainConfig(**values, bonus_options={**options.get(bonus, {}), **chosen})
    identity = run_id(config)
    others = {
        key: value
        for key, value in point.items()
        if key in FIELDS - {"env", "noise", "bonus", "seed"}
    } | chosen
    words = [
        config.env,
        config.noise,
        config.bonus,
        *(_word(key, value) for key, value in others.items() if value != "none"),
    ]
    name = re.sub(r"[^\w.@-]+", "_", "-".join([*words, f"s{config.seed}", identity[:8]]))
    return Planned(identity, name, dataclasses.replace(config, out=root / name))


def run_id(config: TrainConfig) -> str:
    """Return an id that is the same for the same settings, wherever and whenever.

    Numbers count by their value: 1 and 1.0 make the same run.
    """
    settings = {
        key: value for key, value in dataclasses.asdict(config).items() if key not in NOT_OF_THE_RUN
    }
    return hashlib.sha256(json.dumps(plain(settings), sort_keys=True).encode()).hexdigest()


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
    return value in wanted if isinstance(wanted, list) else value == wanted


def _line_of(text: str, key: str) -> str:
    """Find the line of a key in the text, if possible."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(rf"\s*(\[+[\w.]*)?{re.escape(key)}\s*[=\]]", line):
            return f"line {number}, "
    return ""
