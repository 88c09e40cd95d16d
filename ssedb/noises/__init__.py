"""Noises that disturb an agent: each is one file of this folder, found by its name.

This module imports no torch, so that settings can be checked at once.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args

from ssedb.errors import ConfigError
from ssedb.validate import import_class, import_outside, require, unknown_name

if TYPE_CHECKING:
    from ssedb.config import TrainConfig
    from ssedb.noises.base import Noise


def list_noises() -> list[str]:
    """Return the names of the noises: one file each here, or in a folder added to `__path__`."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    names = [name.replace("_", "-") for name in modules if name != "base"]
    return sorted(names, key=lambda name: (name != "none", name))


def noises_over(seen: Literal["images", "vectors"]) -> list[str]:
    """Return the names of the noises that can be laid over images, or over vectors."""
    return [name for name in list_noises() if noise_class(name).fits(seen)]


def require_noise(name: str, strength: float = 1.0, variant: str = "") -> None:
    """Raise ConfigError for an unknown noise, or a strength or variant that it does not have.

    Torch takes seconds to load, so the file of a noise is opened only for an unusual strength or a
    given variant.
    """
    if ":" in name or name not in list_noises() or strength > 1 or variant:
        cls = noise_class(name)
        cls.require_strength(strength, "noise_strength")
        cls.require_variant(variant)


def about_noises() -> dict[str, str]:
    """Return the first line of each noise's docstring, and its variants, by the noise's name."""
    about = {}
    for name in list_noises():
        cls = noise_class(name)
        line = (cls.__doc__ or "").strip().splitlines()[0].removesuffix(".")
        about[name] = line + (f" (variants: {', '.join(cls.variants)})" if cls.variants else "")
    return about


def is_noise(name: str) -> bool:
    """Tell whether a name is that of a noise; `none`, which is a bonus as well, is not.

    Raises:
        ConfigError: if the module of `package.module:Class` cannot be imported.
    """
    if ":" not in name:
        return name != "none" and name in list_noises()
    import_outside(repr(name), name.partition(":")[0])  # which may be a bonus's
    from ssedb.noises.base import Noise

    try:
        import_class("noise", name, Noise)
    except ConfigError:
        return False
    return True


def noise_class(name: str) -> type[Noise]:
    """Return the class in the file of that name, or the class that `package.module:Class` names."""
    if ":" in name:
        from ssedb.noises.base import Noise

        return import_class("noise", name, Noise)
    if name in list_noises():
        cls: type[Noise] = import_module(f"ssedb.noises.{name.replace('-', '_')}").NOISE
        return cls
    raise ConfigError(f"noise={name!r}: {unknown_name(name, list_noises())}")


def noise_label(name: str, strength: float = 1.0, variant: str = "") -> str:
    """Return a noise's name for tables and figures, with its variant and strength if unusual."""
    about = [variant] if variant else []
    about += [f"strength {strength:g}"] if strength != 1 and name != "none" else []
    return f"{name} ({', '.join(about)})" if about else name


def label_of(settings: Mapping[str, Any]) -> str:
    """Return `noise_label` of the settings of a run, as config.toml has them.

    The usual variant of `--fidelity released` is another noise than that of the others, so it is in
    the label. No module from outside is imported.
    """
    name, strength = str(settings.get("noise", "?")), settings.get("noise_strength", 1.0)
    variant = settings.get("noise_variant", "")
    if settings.get("fidelity") == "released" and name in list_noises():
        variant = chosen_variant(name, variant, "released")
    return noise_label(name, strength, variant)


def chosen_variant(name: str, variant: str, fidelity: str) -> str:
    """Return the variant given, or the second one of the noise under `released`; "" for the first.

    Torch takes seconds to load, so the file of a noise is opened only under `released`.
    """
    if variant or fidelity != "released":
        return variant
    return "".join(noise_class(name).variants[1:2])


def given_variant(name: str, variant: str, fidelity: str) -> str:
    """Return a variant as settings keep it: empty where the fidelity chooses the same."""
    return "" if variant and variant == make_noise(name, fidelity=fidelity).variant else variant


def make_noise(
    name: str, strength: float = 1.0, variant: str = "", *, fidelity: str = "paper"
) -> Noise:
    """Build a noise by its name.

    Args:
        name: a name of `list_noises`, or `package.module:Class`.
        strength: 0 changes nothing, 1 is the usual; at most the class's `max_strength`.
        variant: one of the class's `variants`; the fidelity's unless given.
        fidelity: `released` chooses the second variant if there is one; `paper` and `ours` choose
            the first.
    """
    from ssedb.options import Fidelity

    words = get_args(Fidelity)
    require(fidelity in words, "fidelity", repr(fidelity), f"use one of {', '.join(words)}")
    return noise_class(name)(strength, chosen_variant(name, variant, fidelity))


def noise_of(config: TrainConfig) -> Noise:
    """Build the noise that the settings of a run name."""
    return make_noise(
        config.noise, config.noise_strength, config.noise_variant, fidelity=config.fidelity
    )
