"""A file with a complete copy of a run, from which another process can go on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from agileml.errors import BadArgument
from agileml.pipeline.elastic.controller import ElasticSettings
from agileml.pipeline.run.node import STATE, PipelineFrame
from agileml.pipeline.schedule.schedules import FLUSHING

_ABOUT = "about"


@dataclass(frozen=True)
class PipelineCheckpoint:
    """The losses before a batch, and the layers in order."""

    batch: int
    losses: Mapping[int, float]
    layers: Sequence[PipelineFrame]


def save_checkpoint(path: Path, settings: ElasticSettings, kept: PipelineCheckpoint) -> None:
    """Replaces the file in one step."""
    about = {
        "batch": kept.batch,
        "as": _terms(settings),
        "losses": {str(k): loss for k, loss in kept.losses.items() if k < kept.batch * settings.batch},
        "layers": {str(layer): (frame.versions, frame.counts) for layer, frame in enumerate(kept.layers)},
    }
    arrays = {f"{layer}/{i}": array for layer, frame in enumerate(kept.layers) for i, array in enumerate(frame.arrays)}
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        np.savez(file, **{_ABOUT: np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)}, **arrays)  # type: ignore[arg-type]
    new.replace(path)


def _terms(settings: ElasticSettings) -> str:
    """The settings on which the result depends; flushing schemes count as one."""
    scheme = "flush" if settings.scheme in FLUSHING else settings.scheme
    return f"{scheme} with {settings.batch} microbatches"


def load_checkpoint(path: Path, settings: ElasticSettings) -> PipelineCheckpoint:
    """The content of a file. Raises BadArgument if it is of another run."""
    frames: dict[int, PipelineFrame] = {}
    try:
        with np.load(path) as file:
            about = json.loads(file[_ABOUT].tobytes())
            batch = int(about["batch"])
            for name, (versions, counts) in about["layers"].items():
                count = sum(1 for key in file.files if key.startswith(f"{name}/"))
                arrays = tuple(file[f"{name}/{i}"] for i in range(count))
                frames[int(name)] = PipelineFrame(
                    0, (STATE, int(name), batch), arrays, tuple(versions), (counts[0], counts[1])
                )
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise BadArgument(
            f"checkpoint {path}: cannot be read ({error}); remove it to start from the beginning"
        ) from None
    if len(frames) != len(settings.layer_bytes):
        raise BadArgument(f"checkpoint {path} belongs to a model of {len(frames)} layers; remove it or name another")
    if about.get("as") != _terms(settings):
        raise BadArgument(
            f"checkpoint {path} was written by {about.get('as', 'an older version')}, and this run is"
            f" {_terms(settings)}: use the same scheme and number of microbatches, or name another file"
        )
    losses = {int(k): loss for k, loss in about["losses"].items()}
    return PipelineCheckpoint(batch, losses, [frame for _, frame in sorted(frames.items())])
