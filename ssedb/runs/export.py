"""Weights of a run as safetensors, for other programs."""

from __future__ import annotations

import json
from pathlib import Path

from ssedb.errors import ConfigError, require_installed
from ssedb.runs.files import cannot_write, make_folder, require_writable, write_whole
from ssedb.runs.folder import identity, require_checkpoint, saved_config

FILE = "weights.safetensors"


def require_exportable(run: Path, out: Path | None) -> Path:
    """Return where the weights go; raise ConfigError for a mistake, before torch is loaded."""
    require_installed("safetensors", extra="export")
    require_checkpoint(run, saved_config(run))
    path = run / FILE if out is None else out
    if path.exists() and path.suffix != ".safetensors":
        raise ConfigError(f"{path} is there already and no .safetensors file; choose another --out")
    require_writable(path)
    return path


def export(run: Path | str, out: Path | str | None = None) -> Path:
    """Write the weights of a run's newest checkpoint as safetensors.

    Names are `policy.<parameter>` and `bonus.<parameter>`, buffers such as the scale of
    observations included; the transitions in a bonus's memory are not. The metadata hold the steps,
    the run's settings as JSON, and the slope of every leaky ReLU.

    Args:
        run: the run's folder.
        out: the file; `weights.safetensors` in the run's folder unless given.
    """
    path = require_exportable(Path(run), None if out is None else Path(out))
    from safetensors.torch import save

    from ssedb.bonuses import bonus_class
    from ssedb.networks import LEAK
    from ssedb.runs.agent import load

    agent = load(run, "cpu")
    memories = {f"bonus.{name}" for name in bonus_class(agent.config.bonus).memories}
    tensors = {
        f"{part}.{name}": tensor.contiguous()
        for part in ("policy", "bonus")
        for name, tensor in agent.state[part].items()
        if f"{part}.{name.partition('.')[0]}" not in memories
    }
    settings = json.dumps(identity(agent.config))
    make_folder(path.parent)
    try:
        about = {"steps": str(agent.steps), "settings": settings, "leaky_relu_slope": str(LEAK)}
        write_whole(path, save(tensors, about))
    except OSError as error:
        raise cannot_write(path, error) from None
    return path
