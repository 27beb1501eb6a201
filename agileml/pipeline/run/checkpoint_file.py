"""The controller's copies in a file, from which another process can go on."""

import json
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from agileml.errors import BadArgument
from agileml.pipeline.elastic.controller import ElasticController
from agileml.pipeline.run.copies import Copies
from agileml.pipeline.run.node import STATE, PipelineFrame
from agileml.pipeline.schedule.schemes import FLUSHING

_ABOUT = "about"


def save_checkpoint(path: Path, controller: ElasticController, copies: Copies) -> None:
    """Replaces the file in one step."""
    batch = controller.backup
    about = {
        "batch": batch,
        "as": _terms(controller),
        "losses": {str(k): loss for k, loss in controller.losses.items() if k < batch * controller.settings.batch},
        "layers": {str(layer): (frame.versions, frame.counts) for layer, frame in copies[batch].items()},
    }
    arrays = {f"{layer}/{i}": array for layer, frame in copies[batch].items() for i, array in enumerate(frame.arrays)}
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        np.savez(file, **{_ABOUT: np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)}, **arrays)  # type: ignore[arg-type]
    new.replace(path)


def _terms(controller: ElasticController) -> str:
    """The settings on which the result depends; flushing schemes count as one."""
    settings = controller.settings
    scheme = "flush" if settings.scheme in FLUSHING else settings.scheme
    return f"{scheme} with {settings.batch} microbatches"


def load_checkpoint(path: Path, controller: ElasticController, copies: Copies) -> None:
    """Lets a new controller go on where the file was written."""
    try:
        with np.load(path) as file:
            about = json.loads(file[_ABOUT].tobytes())
            batch = int(about["batch"])
            for name, (versions, counts) in about["layers"].items():
                count = sum(1 for key in file.files if key.startswith(f"{name}/"))
                arrays = tuple(file[f"{name}/{i}"] for i in range(count))
                frame = PipelineFrame(0, (STATE, int(name), batch), arrays, tuple(versions), tuple(counts))
                copies.setdefault(batch, {})[int(name)] = frame
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise BadArgument(
            f"checkpoint {path}: cannot be read ({error}); remove it to start from the beginning"
        ) from None
    if len(copies[batch]) != len(controller.settings.layer_bytes):
        raise BadArgument(
            f"checkpoint {path} belongs to a model of {len(copies[batch])} layers; remove it or name another"
        )
    if about.get("as") != _terms(controller):
        raise BadArgument(
            f"checkpoint {path} was written by {about.get('as', 'an older version')}, and this run is"
            f" {_terms(controller)}: use the same scheme and number of microbatches, or name another file"
        )
    controller.resume(batch, {int(k): loss for k, loss in about["losses"].items()})
