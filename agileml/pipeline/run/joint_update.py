"""Numbers that an update needs from all layers of a pipeline: the sum of tied gradients, and their common norm.

The stages pass gradients and norms from the last to the first, and the sums back. They are added in the order of the
layers, so the result does not depend on where the model is cut.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import sqrt

import numpy as np

from agileml.checks import check_number
from agileml.errors import BadArgument
from agileml.pipeline.model.arrays import ABSENT, is_absent
from agileml.pipeline.model.base import Array, PipelineLayer, Weights
from agileml.pipeline.model.gradients import added, scaled, squared_norm
from agileml.pipeline.schedule.schedules import STASHING

TiedWeight = tuple[tuple[int, int], ...]
"""Layers that have a weight in common, and its position among the weights of each."""
_AS_CLIPPED_BY_TORCH = 1e-6
"""Added to the norm by torch.nn.utils.clip_grad_norm_."""


def tied_weights(layers: Sequence[PipelineLayer]) -> list[TiedWeight]:
    """All weights that several layers have in common."""
    members: dict[object, list[tuple[int, int]]] = {}
    for i, layer in enumerate(layers):
        for position, label in getattr(layer, "ties", {}).items():
            members.setdefault(label, []).append((i, position))
    return [tuple(places) for places in members.values() if len(places) > 1]


def check_joint_update(layers: Sequence[PipelineLayer], clip_norm: float | None, scheme: str, tensor: int) -> None:
    """Raises BadArgument where the stages do not update at the same time, or where layers are split."""
    tied = tied_weights(layers)
    if not tied and clip_norm is None:
        return
    places = ", ".join(str(layer) for layer, _ in tied[0]) if tied else ""
    cause = f"layers {places} share a weight" if tied else f"clip_norm is {clip_norm}"
    if scheme in STASHING:
        raise BadArgument(f"{cause}, and the stages of {scheme} update at different times: use flush or 2bw")
    if tensor > 1:
        raise BadArgument(f"{cause}, which split layers do not support: set tensor to 1")
    if clip_norm is not None:
        check_number("clip_norm", clip_norm, 0, above=True)


@dataclass(frozen=True)
class JointUpdate:
    """The tied weights of a model, and the largest norm of all gradients."""

    layers: int
    tied: Sequence[TiedWeight]
    clip_norm: float | None

    @property
    def needed(self) -> bool:
        return bool(self.tied) or self.clip_norm is not None

    def collected(self, means: Mapping[int, Weights], later: tuple[Array, ...] | None) -> tuple[Array, ...]:
        """The norm of each layer's gradients and all tied gradients, of a stage's layers and of later stages."""
        places = [place for places in self.tied for place in places]
        norms, *gradients = later or (np.zeros(self.layers), *(ABSENT for _ in places))
        norms = norms.copy()
        for layer, weights in means.items() if self.clip_norm is not None else ():
            norms[layer] = sum(squared_norm(gradient) for i, gradient in enumerate(weights) if (layer, i) not in places)
        own = [
            means[layer][i] if layer in means else gradient
            for (layer, i), gradient in zip(places, gradients, strict=True)
        ]
        return norms, *own

    def summed(self, collected: tuple[Array, ...]) -> tuple[Array, ...]:
        """The norm of all gradients, and the sum of each tied one: backward, as PyTorch adds them."""
        norms, *gradients = collected
        totals, at = [], 0
        for places in self.tied:
            totals.append(reduce(added, reversed(gradients[at : at + len(places)])))
            at += len(places)
        squares = [*norms.tolist(), *(squared_norm(total) for total in totals if self.clip_norm is not None)]
        return np.array(sqrt(sum(squares))), *totals

    def applied(self, means: Mapping[int, Weights], sums: tuple[Array, ...]) -> dict[int, Weights]:
        """The gradients of a stage's layers for the update."""
        norm, *totals = sums
        places = {place: total for places, total in zip(self.tied, totals, strict=True) for place in places}
        factor = min(self.clip_norm / (float(norm) + _AS_CLIPPED_BY_TORCH), 1.0) if self.clip_norm is not None else 1.0
        return {
            layer: tuple(_times(places.get((layer, i), gradient), factor) for i, gradient in enumerate(weights))
            for layer, weights in means.items()
        }


def _times(gradient: Array, factor: float) -> Array:
    return gradient if factor == 1.0 or is_absent(gradient) else scaled(gradient, factor)
