"""Layers whose weights several devices share, for models of your own."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import ClassVar, TypeVar

from agileml.errors import BadArgument
from agileml.pipeline.model.base import Array, DrawKey, PipelineLayer, Stash, Weights
from agileml.protocol.actions import Send

FrameKey = tuple[str, int, int]
"""Kind, virtual stage or layer, and microbatch or update."""


@dataclass(frozen=True)
class PipelineFrame:
    """Arrays for another node; those of an older epoch are dropped."""

    epoch: int
    key: FrameKey
    arrays: tuple[Array, ...]
    among_nodes: ClassVar[bool] = True
    """Only nodes send it, to each other (`agileml.runtime.rights`)."""


_T = TypeVar("_T")
Awaiting = Generator[FrameKey | Send, tuple[Array, ...], _T]
"""Yields frames to send, and the key of each frame that is needed, with whose arrays it is
resumed."""


@dataclass(frozen=True)
class TensorPart:
    """One of the `parts` consecutive layers of a split layer: each gets the same input, and the
    outputs are added up.

    The heads of an attention layer can be split this way, or the hidden units of a feed-forward
    layer. With `residual` the input is added too. A node computes all parts, or with tensor
    parallelism one of them. The sum is taken in the order of the parts either way, so the result is
    the same bit for bit.
    """

    layer: PipelineLayer
    part: int
    parts: int
    residual: bool = False

    def initial(self, key: DrawKey) -> Weights:
        return self.layer.initial(key)

    def forward(self, weights: Weights, inputs: Array, key: DrawKey) -> tuple[Array, Stash]:
        return self.layer.forward(weights, inputs, key)

    def backward(self, weights: Weights, stash: Stash, gradient: Array) -> tuple[Array, Weights]:
        return self.layer.backward(weights, stash, gradient)


def split_layer(parts: Sequence[PipelineLayer], *, residual: bool = False) -> list[TensorPart]:
    """The layers of a model for one layer that is split into these parts."""
    return [TensorPart(layer, i, len(parts), residual) for i, layer in enumerate(parts)]


def pieces(layers: Sequence[PipelineLayer]) -> list[range]:
    """The layers between two cuts: a single layer, or all parts of a split layer."""
    ranges: list[range] = []
    at = 0
    while at < len(layers):
        first = layers[at]
        count = first.parts if isinstance(first, TensorPart) else 1
        if isinstance(first, TensorPart):
            given = layers[at : at + count]
            for i in range(first.parts):
                layer = given[i] if i < len(given) else None
                wanted = (i, first.parts, first.residual)
                if (
                    not isinstance(layer, TensorPart)
                    or (layer.part, layer.parts, layer.residual) != wanted
                ):
                    raise BadArgument(
                        f"layer {at + i} is not part {i} of the {first.parts} that layer {at} "
                        "begins: make them with agileml.pipeline.tensor_parts.split_layer"
                    )
        ranges.append(range(at, at + count))
        at += count

    return ranges


def sum_of_parts(parts: Sequence[Array], whole: Array, *, residual: bool) -> Array:
    """The sum of the parts in their order, and with `residual` of the input too."""
    total = reduce(add, parts)
    return total + whole if residual else total
