"""Layers in the checkpoints of a job: each layer is a partition, and the batch that comes next is the clock."""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from agileml.params.layout import Params
from agileml.pipeline.model.arrays import named_arrays
from agileml.pipeline.run.node import STATE, PipelineFrame, layer_state
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
