"""A grid file as it stands, checked; complaints name the key and its line."""

from __future__ import annotations

import dataclasses
import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from ssedb.config import TrainConfig, bonus_of
from ssedb.errors import ConfigError, did_you_mean
from ssedb.options import canonical_bonus, options_class
from ssedb.runs.folder import NOT_OF_THE_RUN

FIELDS = {f.name for f in dataclasses.fields(TrainConfig)} - {"out", "bonus_options"}

LISTS = {name for name, hint in get_type_hints(TrainConfig).items() if get_origin(hint) is tuple}
"""Settings that are lists themselves."""

SHAPES: dict[str, tuple[type, str]] = {
    "name": (str, "text"),
    "probe": (bool, "true or false"),
    "settings": (dict, "a table"),
    "axes": (dict, "a table"),
    "bonus_options": (dict, "a table"),
    "exclude": (list, "a list of tables"),
}
"""The keys of a grid file, and what their values are."""


class GridFile:
    """Content of a grid file, with what the command line replaces.

    Attributes:
        overrides: settings and axes of the command line.
        name: of the grid.
        probe: whether each run is probed at its end.
        settings: what all runs share.
        axes: lists of values, which are combined.
        options: settings of each bonus's own.
        excludes: combinations to leave out.
        known: names of the options of each bonus of the grid.
    """

    def __init__(self, path: Path, overrides: Mapping[str, Any]) -> None:
        """Read and check a file; raise ConfigError for what is wrong in it."""
        self.path, self.overrides = path, overrides
        values = self._read()
        self.settings: dict[str, Any] = dict(values.get("settings", {}))
        self.axes: dict[str, Any] = dict(values.get("axes", {}))
        self.options: dict[str, Any] = dict(values.get("bonus_options", {}))
        self.excludes: list[Any] = values.get("exclude", [])
        self.probe: bool = values.get("probe", False)
        self._override()
        self._canonicalize()
        self._require_known_settings()
        self._require_axes()
        self.known = self._require_options()
        self._require_excludes()
        self.name: str = values.get("name", path.stem)
        if self.name in ("", ".", "..") or "/" in self.name or not self.name.isprintable():
            raise self.wrong(
                "name", f"{self.name!r} must name a folder under runs/; use letters, or --out"
            )

    def points(self) -> Iterator[dict[str, Any]]:
        """Yield every combination of the axes."""
        for values in itertools.product(*self.axes.values()):
            yield dict(zip(self.axes, values, strict=True))

    def wrong(self, key: str, said: str) -> ConfigError:
        """Return a complaint about a key."""
        return ConfigError(f"{self.where(key)}{key}: {said}")

    def wrong_run(self, point: Mapping[str, Any], error: ConfigError) -> ConfigError:
        """Return a complaint about a run that names the setting, or the combination of axes."""
        key = str(error).partition("=")[0]
        bonus = bonus_of({**self.settings, **point})
        options = self.options.get(bonus, {})
        if key in self.overrides or key in self.settings:
            return ConfigError(f"{self.where(key)}{error}")
        if key in options:
            return ConfigError(f"{self.where(key, bonus)}{error}")
        run = ", ".join(f"{key}={value}" for key, value in point.items()) or "these settings"
        return ConfigError(f"{self.path}, the run with {run}: {error}")

    def where(self, key: str, bonus: str = "") -> str:
        """Name the source of a setting or a bonus's option: the command line, or file and line."""
        if key in self.overrides:
            return "" if key == "device" else "--set "
        return f"{self.path}, {_line_of(self.text, key, bonus)}"

    def _read(self) -> dict[str, Any]:
        if self.path.is_char_device() or self.path.is_block_device():  # it may never end
            raise ConfigError(f"{self.path} is a device; name a grid file (experiments/*.toml)")
        try:
            self.text = self.path.read_text(encoding="utf-8")
            values = tomllib.loads(self.text)
        except OSError as error:
            raise ConfigError(
                f"cannot read {self.path}: {error.strerror}; name a grid file (experiments/*.toml)"
            ) from None
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.path} is not TOML: {error}") from None
        for key, value in values.items():
            if key not in SHAPES:
                raise self.wrong(key, f"there is no such key; use {', '.join(SHAPES)}")
            kind, words = SHAPES[key]
            if not isinstance(value, kind):
                raise self.wrong(key, f"must be {words}, not {value!r}")
        return values

    def _override(self) -> None:
        """Let the command line replace settings and axes."""
        settings, axes = self.settings, self.axes
        for key, value in self.overrides.items():
            if key in axes or key not in FIELDS or (isinstance(value, list) and key not in LISTS):
                settings.pop(key, None)
                axes[key] = value if isinstance(value, list) else [value]
            else:
                settings[key] = value
        if not settings and not axes:
            raise ConfigError(
                f"{self.path} has no [settings] and no [axes]; see experiments/ for grid files"
            )

    def _canonicalize(self) -> None:
        """Name bonuses with dashes, as runs do."""
        for table in (self.settings, self.axes, *self.excludes):
            if isinstance(table, dict) and "bonus" in table:
                table["bonus"] = _canonical(table["bonus"])
        options = {canonical_bonus(bonus): given for bonus, given in self.options.items()}
        if len(options) < len(self.options):
            raise self.wrong("bonus_options", "holds two tables for one bonus; leave one out")
        self.options = options

    def _require_known_settings(self) -> None:
        for key in self.settings:
            if key not in FIELDS:
                meant = did_you_mean(key, sorted(FIELDS))
                raise self.wrong(
                    key,
                    f"a run has no such setting; {meant}see `ssedb train --help` "
                    "(options of a bonus stand under [bonus_options.BONUS])",
                )

    def _require_axes(self) -> None:
        for key, values in self.axes.items():
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
            if key in self.settings:
                raise self.wrong(key, "is both a setting and an axis; leave one out")

    def _require_options(self) -> dict[str, set[str]]:
        """Check the options of bonuses; return their names by bonus."""
        named = [str(bonus_of({**self.settings, **point})) for point in self.points()]
        bonuses = list(dict.fromkeys(named))
        for bonus, given in self.options.items():
            if bonus not in bonuses and self.overrides.keys() & {"bonus", "fidelity"}:
                continue  # the command line has left it out
            if bonus not in bonuses or not isinstance(given, dict):
                raise self.wrong(
                    bonus,
                    f"bonus_options holds a table for a bonus of the grid ({', '.join(bonuses)})",
                )
        known = {bonus: self._options_of(bonus) for bonus in bonuses}
        for bonus, names in known.items():
            for key in self.options.get(bonus, {}):
                if key not in names:
                    meant = did_you_mean(key, sorted(names))
                    has = ", ".join(sorted(names)) or "none"
                    said = f"{key}: {bonus} has no such option; {meant}it has {has}"
                    raise ConfigError(f"{self.where(key, bonus)}{said}")
        for key in self.axes:
            if key not in FIELDS and not any(key in names for names in known.values()):
                raise self.wrong(
                    key, "is neither a setting of a run nor an option of one of the grid's bonuses"
                )
        return known

    def _options_of(self, bonus: str) -> set[str]:
        try:
            return {f.name for f in dataclasses.fields(options_class(bonus))}
        except ConfigError as error:
            raise self.wrong("bonus", str(error)) from None

    def _require_excludes(self) -> None:
        for entry in self.excludes:
            if not isinstance(entry, dict) or not entry or not set(entry) <= set(self.axes):
                raise self.wrong(
                    "exclude", f"{entry!r} must name values of axes ({', '.join(self.axes)})"
                )


def _canonical(bonus: Any) -> Any:
    """Return one or several bonuses by their names with dashes; leave what is no text."""
    if isinstance(bonus, list):
        return [_canonical(one) for one in bonus]
    return canonical_bonus(bonus) if isinstance(bonus, str) else bonus


def _line_of(text: str, key: str, bonus: str = "") -> str:
    """Find the line of a key in the text, or in its table of a bonus's options, if possible."""
    name = re.escape(bonus).replace("\\-", "[-_]")
    table = re.compile(rf"\s*\[\s*bonus_options\s*\.\s*[\"']?{name}[\"']?\s*\]")
    there = not bonus
    for number, line in enumerate(text.splitlines(), 1):
        there = there or bool(table.match(line))
        if there and re.match(rf"\s*(\[+[\w.]*)?{re.escape(key)}\s*[=\]]", line):
            return f"line {number}, "
    return ""
