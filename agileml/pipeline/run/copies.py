"""The controller's copies of layers: kept, sent to nodes, and read at the end."""

from dataclasses import replace

from agileml.pipeline.elastic.messages import CONTROLLER, TakeSeat
from agileml.pipeline.model.base import PipelineModel, Weights
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
    wanted = [layer for layer, source in seat.sources.items() if source == CONTROLLER]
    return [replace(copies[seat.batch][layer], epoch=seat.epoch) for layer in wanted]


def final_weights(model: PipelineModel, copies: Copies, batches: int) -> dict[int, Weights]:
    """The newest weights of all layers at the end."""
    last = sorted(copies[batches].items())
    return {layer: layer_state(frame, len(model.initial(layer))).newest() for layer, frame in last}
