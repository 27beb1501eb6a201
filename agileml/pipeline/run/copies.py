"""The controller's copies of layers: kept, sent to nodes, and read at the end."""

from dataclasses import replace

from agileml.pipeline.elastic.messages import STORE, TakeSeat
from agileml.pipeline.model.base import Weights
from agileml.pipeline.run.node import PipelineFrame, layer_state

Copies = dict[int, dict[int, PipelineFrame]]
"""Frames with the state of layers, by batch and layer."""


def store_copy(copies: Copies, frame: PipelineFrame, backup: int) -> None:
    """Keeps a copy, and drops copies from before the newest complete backup."""
    _, layer, batch = frame.key
    copies.setdefault(batch, {})[layer] = frame
    for old in [number for number in copies if number < backup]:
        del copies[old]


def copies_for(seat: TakeSeat, copies: Copies) -> list[PipelineFrame]:
    """The frames that the controller has to send to a node that takes a seat."""
    wanted = [layer for layer, source in seat.sources.items() if source == STORE]
    return [replace(copies[seat.batch][layer], epoch=seat.epoch) for layer in wanted]


def final_weights(copies: Copies, batches: int) -> dict[int, Weights]:
    """The newest weights of all layers at the end."""
    last = sorted(copies[batches].items())
    return {layer: layer_state(frame).newest() for layer, frame in last}


def final_buffers(copies: Copies, batches: int) -> dict[int, Weights]:
    """The buffers of the layers that have any, at the end."""
    last = sorted(copies[batches].items())
    return {layer: held for layer, frame in last if (held := layer_state(frame).buffers)}
