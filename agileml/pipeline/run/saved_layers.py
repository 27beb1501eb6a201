"""Layers in the checkpoints of a job and in files: in a job, each is a partition, and the next batch is the clock."""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from agileml.errors import BadArgument
from agileml.params.layout import Params
from agileml.pipeline.elastic.controller import ElasticSettings
from agileml.pipeline.model.arrays import named_arrays
from agileml.pipeline.run.node import STATE, PipelineFrame, layer_state
from agileml.pipeline.schedule.schedules import FLUSHING
from agileml.protocol.messages import Tally, Version
from agileml.runtime.blob_store import BlobStore
from agileml.runtime.checkpoints import WRITERS, ModelCheckpoints

_RETRY_SECONDS = 1.0

log = logging.getLogger(__name__)


class SavedLayers:
    """A node's access to the checkpoints; threads of its own write, because a store may be slow."""

    def __init__(self, blobs: BlobStore, done: Callable[[Callable[[], None]], None]) -> None:
        """`done` is called by these threads with what the node is to do next."""
        self._checkpoints = ModelCheckpoints(blobs)
        self._threads = ThreadPoolExecutor(WRITERS, "disk")
        self._done = done
        self._closed = False

    def save(self, frame: PipelineFrame, then: Callable[[], None]) -> None:
        self._threads.submit(self._write, frame, then)

    def load(self, layer: int, batch: int) -> PipelineFrame | None:
        return layer_frame(layer, self._checkpoints.load(layer, batch))

    def close(self) -> None:
        """Writes nothing any more."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _write(self, frame: PipelineFrame, then: Callable[[], None]) -> None:
        _, layer, _ = frame.key
        version = version_of(frame)
        while not self._closed:
            try:
                self._checkpoints.save(layer, version)
            except OSError as error:
                log.error("cannot write a checkpoint, and will try again: %s", error)
                time.sleep(_RETRY_SECONDS)
            else:
                self._done(then)
                return


def version_of(frame: PipelineFrame) -> Version:
    """The checkpoint of a layer."""
    _, _, batch = frame.key
    head = np.array([*frame.counts, *frame.versions], np.int64)
    return Version(batch, Tally(0, 0), [head, *frame.arrays])


def layer_frame(layer: int, version: Version) -> PipelineFrame:
    """The layer in a checkpoint."""
    head, *arrays = version.state
    count, buffers, *versions = head.tolist()
    return PipelineFrame(0, (STATE, layer, version.clock), tuple(arrays), tuple(versions), (count, buffers))


def model_of_layers(versions: Sequence[Version]) -> Params:
    """The newest weights and the buffers of all layers, by name."""
    states = [layer_state(layer_frame(layer, version)) for layer, version in enumerate(versions)]
    weights = {layer: state.newest() for layer, state in enumerate(states)}
    return named_arrays(weights, {layer: state.buffers for layer, state in enumerate(states)})


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
