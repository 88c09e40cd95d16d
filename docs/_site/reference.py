"""Hook of the site: reference pages made from the code.

`<!-- generated: NAME -->` in a page becomes what the function NAME of `SECTIONS` returns. A public
name without a docstring ends the build.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

import ssedb
from ssedb.bonuses import bonus_class
from ssedb.cli import COMMANDS
from ssedb.config import TrainConfig
from ssedb.noises import list_noises, noise_class
from ssedb.options import Fidelity, Preset, bonus_names, options_class, resolve_options

ROOT = Path(__file__).parents[2]
MARK = re.compile(r"<!-- generated: (\w+) -->")
COMBINATIONS = list(itertools.product(get_args(Preset), get_args(Fidelity)))

CONTRACTS = (
    "ssedb.bonuses.base.Bonus",
    "ssedb.bonuses.base.Context",
    "ssedb.noises.base.Noise",
    "ssedb.envs.base.Env",
    "ssedb.envs.base.Step",
    "ssedb.trainer.Trainer",
)
READERS = (
    "ssedb.runs.metrics.read_metrics",
    "ssedb.compare.results.load_runs",
    "ssedb.compare.results.Run",
    "ssedb.testing.conformance.check_bonus",
    "ssedb.testing.noises.check_noise",
)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put generated sections where a page asks for them."""
    return MARK.sub(lambda mark: SECTIONS[mark[1]](), markdown)


def command_flags() -> str:
    """Return a section per command with its flags; those of `train` are the settings."""
    parts = []
    for command, about in COMMANDS.items():
        module = import_module(f"ssedb.cli.{command}")
        parts.append(f"## ssedb {command}\n\n{about[0].upper()}{about[1:]}.\n")
        specs = [c for c in vars(module).values() if _is_spec(c, module.__name__)]
        for spec in specs:
            if len(specs) > 1:
                parts.append(f"### ssedb {command} {spec.__name__.lower()}\n\n{spec.__doc__}\n")
            rows = [_flag_row(spec, field) for field in dataclasses.fields(spec)]
            parts.append(_table(("flag", "default", "meaning"), rows))
        if command == "train":
            parts.append(
                "Every [setting](settings.md) is a flag: `num_envs` is `--num-envs`. So is every "
                "option of the bonus that `--bonus` names. `--resume FOLDER` continues a run.\n"
            )
    return "\n".join(parts)


def train_settings() -> str:
    """Return a table of the settings of a run."""
    by_name = [
        dataclasses.asdict(TrainConfig(preset=preset, fidelity=fidelity))
        for preset, fidelity in COMBINATIONS
    ]
    rows = [
        (f"`{field.name}`", _values([c[field.name] for c in by_name]), _doc(TrainConfig, field))
        for field in dataclasses.fields(TrainConfig)
        if field.name not in ("preset", "fidelity", "bonus_options")
    ]
    rows += [("`preset`", "`paper`", _doc(TrainConfig, "preset"))]
    rows += [("`fidelity`", "`paper`", _doc(TrainConfig, "fidelity"))]
    return _table(("setting", "default", "meaning"), rows)


def bonus_options() -> str:
    """Return, for each bonus, what it is and its options; of DB's family what differs from DB."""
    of_db = dict(_option_rows("db"))
    parts = []
    for name in bonus_names():
        about = (bonus_class(name).__doc__ or "").strip().splitlines()[0]
        parts.append(f"### {name}\n\n{about}\n")
        rows = _option_rows(name)
        if name != "db" and issubclass(options_class(name), options_class("db")):
            rows = [row for row in rows if of_db.get(row[0]) != row[1]]
            parts.append("It has the options of [`db`](#db), with these added or changed:\n")
        if rows:
            parts.append(_table(("option", "default", "meaning"), [(n, *rest) for n, rest in rows]))
    return "\n".join(parts)


def _option_rows(bonus: str) -> list[tuple[str, tuple[str, str]]]:
    """Return the options of a bonus by name, each with its default and its meaning."""
    cls = options_class(bonus)
    by_name = [resolve_options(bonus, {}, preset=p, fidelity=f) for p, f in COMBINATIONS]
    return [
        (f"`{field.name}`", (_values([c[field.name] for c in by_name]), _doc(cls, field)))
        for field in dataclasses.fields(cls)
    ]


def noises() -> str:
    """Return a table of the noises."""
    rows = []
    for name in list_noises():
        cls = noise_class(name)
        about = (cls.__doc__ or "").strip().splitlines()[0]
        touches = [word for word, yes in _touched(cls).items() if yes]
        variants = ", ".join(f"`{v}`" for v in cls.variants)
        rows.append((f"`{name}`", about, " and ".join(touches) or "-", variants or "-"))
    return _table(("noise", "what it does", "disturbs", "variants"), rows)


def _touched(cls: Any) -> dict[str, bool]:
    return {cls.disturbs: cls.changes_frames(), "actions": cls.changes_actions()}


def public_names() -> str:
    """Return mkdocstrings directives for everything that is public."""
    home = {name: f"{ssedb._HOME[name]}.{name}" for name in ssedb.__all__}
    groups = {"ssedb": home.values(), "Contracts": CONTRACTS, "Readers and checks": READERS}
    undocumented = [u for names in groups.values() for name in names for u in _undocumented(name)]
    if undocumented:
        raise PluginError(f"public, without a docstring: {', '.join(undocumented)}")
    return "\n".join(
        f"## {title}\n\n" + "\n".join(f"::: {name}\n" for name in names)
        for title, names in groups.items()
    )


def notebook() -> str:
    """Return the notebook's cells and their outputs as Markdown; the page has the title."""
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        parts += [_output(output) for output in cell.get("outputs", ())]
    return "\n\n".join(parts)


def _output(output: dict[str, Any]) -> str:
    """Return what a cell printed, or its picture inside the page."""
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text'])}```"
    png = "".join(output["data"]["image/png"]).replace("\n", "")
    return f'<img alt="Output of the cell above" src="data:image/png;base64,{png}">'


SECTIONS = {
    f.__name__: f
    for f in (command_flags, train_settings, bonus_options, noises, public_names, notebook)
}


@cache
def _package() -> griffe.Module:
    package = griffe.load("ssedb", search_paths=[str(ROOT)])
    assert isinstance(package, griffe.Module)
    return package


def _found(dotted: str) -> griffe.Object | griffe.Alias:
    return _package()[dotted.removeprefix("ssedb.")]


def _undocumented(dotted: str) -> Iterator[str]:
    """Yield the name, and public methods and properties of a class, that have no docstring."""
    found = _found(dotted)
    if not found.has_docstring:
        yield dotted
    if found.is_class:
        for name, member in found.members.items():
            if not name.startswith("_") and member.is_function and not member.has_docstring:
                yield f"{dotted}.{name}"


def _is_spec(item: Any, module: str) -> bool:
    here = isinstance(item, type) and item.__module__ == module
    return here and dataclasses.is_dataclass(item)


def _doc(cls: type[Any], field: dataclasses.Field[Any] | str) -> str:
    """Return the line under a field, of its class or the base class that has it."""
    name = field if isinstance(field, str) else field.name
    for owner in cls.__mro__:
        if name in vars(owner).get("__annotations__", {}):
            member = _found(f"{owner.__module__}.{owner.__name__}.{name}")
            if member.docstring is None:
                raise PluginError(f"{owner.__name__}.{name} has no line under it")
            return _links(" ".join(member.docstring.value.split())) + _choices(owner, name)
    raise PluginError(f"{cls.__name__} has no field {name}")


def _choices(cls: type[Any], name: str) -> str:
    """Return the words that a field can be, if its type lists them."""
    hint = get_type_hints(cls)[name]
    words = get_args(hint) if get_origin(hint) is Literal else ()
    return f" One of {', '.join(f'`{word}`' for word in words)}." if len(words) > 1 else ""


def _links(text: str) -> str:
    """Lead `docs/page.md` in a line of documentation to that page."""
    return re.sub(r"docs/([\w-]+)\.md", r"[\1](\1.md)", text)


def _flag_row(spec: type[Any], field: dataclasses.Field[Any]) -> tuple[str, str, str]:
    flag = "--" + field.name.replace("_", "-")
    if "Positional" in str(field.type):
        flag = field.name.upper()
    default = "required" if field.default is dataclasses.MISSING else _value(field.default)
    return f"`{flag}`", default, _doc(spec, field)


def _values(values: list[Any]) -> str:
    """Return the values of the combinations in as few words as they allow."""
    by_name = dict(zip(COMBINATIONS, values, strict=True))
    first = by_name["paper", "paper"]
    words = [_value(first)]
    for name in ("small", "rooms"):
        if by_name[name, "paper"] != first:
            words.append(f"{name}: {_value(by_name[name, 'paper'])}")
    for fidelity in ("released", "ours"):
        changed = {p: by_name[p, fidelity] for p in get_args(Preset)}
        changed = {p: v for p, v in changed.items() if v != by_name[p, "paper"]}
        if len(changed) == 3 and len(set(map(repr, changed.values()))) == 1:
            words.append(f"{fidelity}: {_value(changed['paper'])}")
        else:
            words += [f"{fidelity}, {p}: {_value(v)}" for p, v in changed.items()]
    return "<br>".join(words)


def _value(value: Any) -> str:
    if value in (None, (), "", {}):
        return "-"
    if isinstance(value, tuple | list):
        return " ".join(f"`{v}`" for v in value)
    return f"`{value:,}`" if isinstance(value, int) and value > 9999 else f"`{value}`"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"
