"""Messages between the controller of a pipeline and its nodes."""

from dataclasses import dataclass

from agileml.pipeline.elastic.seats import WorkOrder
from agileml.protocol.messages import Restored, Saved

STORE = "store"
"""The source of a layer that no node holds."""
INITIAL = "initial"
"""The source of a layer before its first update: every node can compute such a layer."""


@dataclass(frozen=True)
class TakeSeat:
    """Take part in an epoch: hold these layers as they were before `batch`."""

    epoch: int
    batch: int
    layers: tuple[int, ...]
    sources: dict[int, str]
    """By layer: a node, `STORE` or `INITIAL`. Layers that are missing here are at the node."""
    gives: tuple[tuple[int, str], ...]
    """Layers to send to other nodes."""
    peers: tuple[str, ...]
    keep: tuple[int, ...] = ()
    """The batches whose states from before them the node keeps, as far as it has them."""


@dataclass(frozen=True)
class RunBatches:
    """Process batches `first` to `last` - 1."""

    epoch: int
    first: int
    last: int
    work: WorkOrder
    keep: tuple[int, ...]
    """As in `TakeSeat`."""


@dataclass(frozen=True)
class CopyLayers:
    """Copy layers as they were before `batch`: to other nodes, and to the store."""

    epoch: int
    batch: int
    copies: tuple[tuple[int, str], ...]
    saved: tuple[int, ...]


@dataclass(frozen=True)
class BatchesDone:
    """The node has finished its work order."""

    node: str
    epoch: int
    losses: dict[int, float]


@dataclass(frozen=True)
class CopyKept:
    """The node has a copy of a layer as it was before `batch`."""

    node: str
    epoch: int
    batch: int
    layer: int


@dataclass(frozen=True)
class FramesLost:
    """The node's link to another node broke and was replaced: frames of this epoch may be lost."""

    node: str
    epoch: int


NodeInstruction = TakeSeat | RunBatches | CopyLayers
NodeReport = Restored | BatchesDone | CopyKept | Saved | FramesLost
"""A node has the layers of its seat, has finished its work, has a copy, has saved a layer, or lacks frames."""
