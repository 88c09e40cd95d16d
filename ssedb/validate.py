"""Settings by their annotations: types and limits by pydantic, one line for a wrong value."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from numbers import Integral, Real
from pathlib import Path
from pkgutil import get_importer
from types import FrameType, ModuleType
from typing import Annotated, Any, TypeVar, get_type_hints

from annotated_types import Ge, Gt, Le
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from pydantic_core import ErrorDetails, to_jsonable_python

from ssedb.errors import ConfigError, Note, did_you_mean, one_line

T = TypeVar("T")

MOST = 10**11
"""Limit of whole numbers: more steps than any run makes, and few enough for torch and emulators."""

PositiveInt = Annotated[int, Gt(0), Le(MOST)]
NonNegativeInt = Annotated[int, Ge(0), Le(MOST)]
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
Fraction = Annotated[float, Ge(0), Le(1)]
Channels = tuple[PositiveInt, PositiveInt, PositiveInt]
"""Filters of three convolutions."""

STORABLE = "may hold text, finite numbers, true, false, lists and tables, but no None"
REMEDIES = {
    "int_type": "must be a whole number",
    "float_type": "must be a finite number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "too_short": "must be a list of {min_length} or more",
    "too_long": "must be a list of {max_length}",
    "dict_type": "must be a table",
    "greater_than": "must be above {gt:,.12g}",
    "greater_than_equal": "must be {ge:,.12g} or more",
    "less_than": "must be below {lt:.12g}",
    "less_than_equal": "must be at most {le:,.12g}",
    "json_invalid": STORABLE,
}
"""The remedy for each type of error that pydantic reports, with fields of the error's context."""


def convert(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of the dataclass `cls`, converted to what its annotations say.

    Lists become tuples, text becomes paths, 1e6 becomes a whole number and 1 becomes 1.0 where the
    annotation asks for it. Text does not become a number, nor does true.

    Raises:
        ConfigError: if a value does not fit its annotation, or config.toml cannot hold it.
    """
    adapters = _adapters(cls)
    return {name: _convert(adapters[name], name, value) for name, value in values.items()}


def plain(value: Any) -> Any:
    """Return a value as JSON and TOML hold it: a tuple as a list, a path as text."""
    return json.loads(_json(value))


def require(condition: bool, name: str, value: object, remedy: str) -> None:
    """Raise ConfigError with the value and the remedy unless the condition holds."""
    if not condition:
        raise ConfigError(f"{name}={value}: {remedy}")


@cache
def _adapters(cls: type) -> dict[str, TypeAdapter[Any]]:
    hints = get_type_hints(cls, include_extras=True)
    adapters: dict[str, TypeAdapter[Any]] = {}
    for field in dataclasses.fields(cls):
        try:
            adapters[field.name] = TypeAdapter(hints[field.name])
        except (PydanticSchemaGenerationError, PydanticUserError):
            raise ConfigError(
                f"{cls.__name__}.{field.name}: no setting can be of type {hints[field.name]}; "
                f"it {STORABLE}"
            ) from None
    return adapters


def _convert(adapter: TypeAdapter[Any], name: str, value: Any) -> Any:
    shown = " ".join(repr(value).split())
    finite = not isinstance(value, Real) or isinstance(value, Integral) or math.isfinite(value)
    require(finite, name, shown, "must be a finite number")
    try:
        text = _json(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name}={shown}: {STORABLE}") from None
    try:
        converted = _validate(adapter, text)
    except ValidationError as error:
        raise ConfigError(f"{name}={shown}: {_remedy(error.errors())}") from None
    require(converted is None or _storable(plain(converted)), name, shown, STORABLE)
    return converted


def _validate(adapter: TypeAdapter[Any], text: str) -> Any:
    # As JSON: in strict mode pydantic takes a list for a tuple from JSON, but not from Python.
    validate = partial(adapter.validate_json, strict=True)
    try:
        return validate(text)
    except ValidationError:  # perhaps a whole number is written as 1e6
        return validate(json.dumps(json.loads(text, parse_float=_number)))


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


def _json(value: Any) -> str:
    return json.dumps(value, default=_jsonable)


def _jsonable(value: Any) -> Any:
    import numpy as np

    if isinstance(value, np.generic):
        return value.item()
    # Sorted: the order of a set of texts changes from process to process, a run's id must not.
    return sorted(value) if isinstance(value, (set, frozenset)) else to_jsonable_python(value)


def _storable(value: Any) -> bool:
    if isinstance(value, (list, dict)):
        return all(map(_storable, value.values() if isinstance(value, dict) else value))
    return value is not None and (not isinstance(value, float) or math.isfinite(value))


def _remedy(errors: list[ErrorDetails]) -> str:
    """Return what a value must be; a union reports an error for each of its members."""
    depth = len(errors[0]["loc"])  # without those of a list whose elements are wrong
    remedies = dict.fromkeys(_remedies([e for e in errors if len(e["loc"]) >= depth]))
    return " or ".join(remedies).replace(" or must be ", " or ")


def _remedies(errors: list[ErrorDetails]) -> Iterator[str]:
    for error in errors:
        kind, context = error["type"], error.get("ctx", {})
        if kind in ("literal_error", "enum"):
            words = context["expected"].replace("'", "").replace(" or ", ", ")
            yield f"use one of {words}" if "," in words else f"use {words}"
        elif kind == "missing" and isinstance(error["loc"][-1], int):  # of a tuple, each element
            last = max(i for e in errors for i in e["loc"][-1:] if isinstance(i, int))
            yield f"must be a list of {last + 1}"
        else:
            yield REMEDIES[kind].format(**context) if kind in REMEDIES else error["msg"]


def import_class(kind: str, name: str, base: type[T]) -> type[T]:
    """Return the subclass of `base` with the name `package.module:Class`, or raise ConfigError."""
    module, _, attribute = name.partition(":")
    setting = f"{kind}={name!r}"
    try:
        found = getattr(import_outside(setting, module), attribute)
    except AttributeError as error:
        raise ConfigError(f"{setting}: {error}; write package.module:Class") from None
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigError(f"{setting} is not a subclass of {base.__module__}.{base.__qualname__}")
    return found


def unknown_name(name: str, known: Sequence[str]) -> str:
    """Return the remedy for a name that is not known: the nearest, a class's form, or all names."""
    meant = did_you_mean(name, known)
    hint = "" if meant else class_hint(name)
    return hint or f"{meant}use one of {', '.join(known)}, or package.module:Class"


def class_hint(name: str) -> str:
    """Return how to write a name that seems to mean a class or a module, "" for any other name."""
    if name.endswith(".py"):
        return f"write {Path(name).stem}:Class, and set PYTHONPATH to its folder"
    module, _, last = name.rpartition(".")
    if not name.replace(".", "_").isidentifier() or not last:
        return ""
    if module:
        return f"write {module}:{last}" if last[0].isupper() else f"write {name}:Class"
    if name in sys.stdlib_module_names:  # `dis` is no bonus of the user
        return ""
    try:
        found = find_spec(name) is not None  # imports nothing, as the name has no dot
    except ValueError:  # a module without a spec, such as __main__
        found = False
    return f"write {name}:Class" if found or os.path.exists(f"{name}.py") else ""


def import_outside(setting: str, module: str) -> ModuleType:
    """Import a module that a setting names, and tell the user which file that runs.

    The command line has taken the current folder from Python's path: a run's folder that came from
    others must not choose code that happens to lie there.
    """
    if module in sys.modules:
        return sys.modules[module]
    if module.endswith(".py"):
        remedy = f"write {Path(module).stem} for {module}, and set PYTHONPATH to its folder"
        raise ConfigError(f"{setting}: {remedy}")
    top = module.partition(".")[0]
    spec = None
    try:
        spec = find_spec(top)
        if spec is not None:
            text = f"importing {module} from {_place(module, spec)}, which {setting} names"
            warnings.warn(text, Note, stacklevel=_callers_level())
        return import_module(module)
    except (Exception, SystemExit) as error:  # whatever a module does when it is imported
        if spec is not None:
            remedy = "correct the name or the file, or install what it imports"
        elif top and (Path(f"{top}.py").exists() or Path(top).is_dir()):
            remedy = "if it is the one in this folder, set PYTHONPATH=."
        else:
            remedy = "install it, or set PYTHONPATH to its folder"
        raise ConfigError(
            f"{setting}: cannot import {module!r} ({one_line(error)}); {remedy}"
        ) from None


def _place(module: str, spec: ModuleSpec) -> str | None:
    """Return the file of a module, or the folder of a package without one; import nothing.

    Args:
        module: the module's name.
        spec: of the package that the name begins with.
    """
    name, *parts = module.split(".")
    for part in parts:
        name = f"{name}.{part}"
        finders = map(get_importer, spec.submodule_search_locations or ())
        found = (finder.find_spec(name) for finder in finders if finder is not None)
        spec = next(filter(None, found), spec)
    return spec.origin or next(iter(spec.submodule_search_locations or ()), None)


def _callers_level() -> int:
    """Return the `stacklevel` at which a warning shows the nearest line outside of this package."""
    frame: FrameType | None = sys._getframe(1)  # of the function that warns, whose level is 1
    level = 1
    while frame is not None and f"{frame.f_globals.get('__name__')}.".startswith("ssedb."):
        frame = frame.f_back
        level += 1
    return level
