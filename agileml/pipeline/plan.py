"""`ParallelPlan`: how a model is split, run, and how fast that is expected to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from agileml.pipeline.profile import BadProfile

Basis = Literal["profiled", "scaled"]

_SPREAD = {"profiled": 0.15, "scaled": 0.4}
"""Half the width of the interval around an estimate, relative to it."""


def around(speed: float, basis: Basis) -> tuple[float, float]:
    """The interval in which the real speed is expected."""
    return speed / (1 + _SPREAD[basis]), speed * (1 + _SPREAD[basis])


@dataclass(frozen=True)
class PlannedStage:
    """Layers `layers[0]` to `layers[1]` on `replicas` devices, and what one microbatch costs there."""

    layers: tuple[int, int]
    replicas: int
    forward_seconds: float
    backward_seconds: float
    output_bytes: float
    send_seconds: float
    """Of the output over the link to the next stage; the gradient takes as long."""
    sync_seconds: float
    """Of one all-reduce of the gradients."""
    weight_bytes: float
    stash_bytes: float
    input_bytes: float
    memory_bytes: float
    update_seconds: float = 0.0
    """Of an update of the weights."""


@dataclass(frozen=True)
class ParallelPlan:
    """The chosen split, its expected speed and memory, and the alternatives that lost."""

    model: str
    scheme: str
    stages: tuple[PlannedStage, ...]
    chunks: int
    noam: int
    microbatch: int
    microbatches: int
    """Per pipeline and batch."""
    recompute: bool
    samples_per_second: float
    interval: tuple[float, float]
    idle: float
    """The share of device time without compute."""
    bubble: float
    """Time lost to filling and draining, relative to the ideal time."""
    memory_bytes: float
    """Of the fullest device."""
    bottleneck: str
    basis: Basis
    unpipelined_samples_per_second: float
    """With one stage at work at a time."""
    rejected: tuple[tuple[str, str], ...] = ()
    tensor: int = 1
    """Devices of each replica of a stage, which share its split layers."""

    @property
    def devices(self) -> int:
        return self.tensor * sum(stage.replicas for stage in self.stages[: self.depth])

    @property
    def depth(self) -> int:
        """Devices in one pipeline. With several chunks, stage i runs on device i modulo this."""
        return len(self.stages) // self.chunks

    def to_json(self) -> dict[str, Any]:
        answer = asdict(self)
        answer["rejected"] = [{"plan": name, "reason": reason} for name, reason in self.rejected]
        return answer


def plan_from_json(content: object) -> ParallelPlan:
    """A plan as `spotctl parallel plan --json` wrote it."""
    if not isinstance(content, Mapping) or not isinstance(content.get("stages"), list):
        raise BadProfile("is not a plan: write one with spotctl parallel plan PROFILE --json")
    try:
        fields = {key: value for key, value in content.items() if key != "devices"}
        fields["stages"] = tuple(PlannedStage(**{**one, "layers": tuple(one["layers"])}) for one in fields["stages"])
        fields["interval"] = tuple(fields["interval"])
        fields["rejected"] = tuple((one["plan"], one["reason"]) for one in fields["rejected"])
        found = ParallelPlan(**fields)
        if found.tensor < 1:
            raise ValueError(f"tensor is {found.tensor}")
        if not 0 < found.chunks <= len(found.stages) or len(found.stages) % found.chunks:
            raise ValueError(f"{len(found.stages)} stages in {found.chunks} chunks")
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise BadProfile(f"is not a complete plan ({error}): write it again with spotctl parallel plan") from None
    return found
