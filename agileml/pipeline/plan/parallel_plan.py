"""`ParallelPlan`: how a model is split, run, and how fast that is expected to be."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from agileml.pipeline.profile.model_profile import BadProfile

SpeedBasis = Literal["profiled", "scaled"]

_SPREAD = {"profiled": 0.15, "scaled": 0.4}
"""Half the width of the interval around an estimate, relative to it."""


def speed_interval(speed: float, basis: SpeedBasis) -> tuple[float, float]:
    """The interval in which the real speed is expected."""
    return speed / (1 + _SPREAD[basis]), speed * (1 + _SPREAD[basis])


@dataclass(frozen=True)
class PlannedStage:
    """Layers `layers[0]` to `layers[1]` on `replicas` devices, and what one microbatch costs there."""

    layers: tuple[int, int]
    """Index of the first layer, and of the last."""
    replicas: int
    """Devices that run copies of the stage."""
    forward_seconds: float
    """Time of the forward pass of a microbatch."""
    backward_seconds: float
    """Time of the backward pass of a microbatch."""
    output_bytes: float
    """Size of the output of a microbatch."""
    send_seconds: float
    """Time to send the output to the next stage; the gradient takes as long."""
    sync_seconds: float
    """Time of one all-reduce of the gradients."""
    weight_bytes: float
    """Size of the weights."""
    stash_bytes: float
    """Memory for each microbatch in flight, until its backward pass."""
    input_bytes: float
    """Size of the input of a microbatch."""
    memory_bytes: float
    """Memory that a device needs."""
    update_seconds: float = 0.0
    """Time of an update of the weights."""


@dataclass(frozen=True)
class ParallelPlan:
    """The chosen split, its expected speed and memory, and the alternatives that lost."""

    model: str
    """Name of the model."""
    scheme: str
    """Schedule of forward and backward passes."""
    stages: tuple[PlannedStage, ...]
    """Pipeline stages in order."""
    chunks: int
    """Chunks of layers per device."""
    noam: int
    """Inputs that each replica of the first stage admits before the pipeline is full."""
    microbatch: int
    """Samples in a microbatch."""
    microbatches: int
    """Microbatches per pipeline and batch."""
    recompute: bool
    """Whether the forward pass is repeated before the backward pass to save memory."""
    samples_per_second: float
    """Expected speed."""
    interval: tuple[float, float]
    """Interval of the speed."""
    idle: float
    """Share of device time without computation."""
    bubble: float
    """Time lost to filling and draining the pipeline, relative to the ideal time."""
    memory_bytes: float
    """Memory needed on the fullest device."""
    bottleneck: str
    """Bottleneck of the plan."""
    basis: SpeedBasis
    """Origin of the layer times: measured on this device type, or scaled to it."""
    unpipelined_samples_per_second: float
    """Speed if only one stage worked at a time."""
    rejected: tuple[tuple[str, str], ...] = ()
    """Plans that are slower or do not fit."""
    tensor: int = 1
    """Devices of each replica of a stage, which share its split layers."""
    every: int = 1
    """Updates between copies of all layers; training returns to a copy if the only node with a layer is lost."""

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
        fields["stages"] = tuple(
            PlannedStage(**{**stage, "layers": tuple(stage["layers"])}) for stage in fields["stages"]
        )
        fields["interval"] = tuple(fields["interval"])
        fields["rejected"] = tuple((loser["plan"], loser["reason"]) for loser in fields["rejected"])
        plan = ParallelPlan(**fields)
        if plan.tensor < 1:
            raise ValueError(f"tensor is {plan.tensor}")
        if not isinstance(plan.every, int) or plan.every < 1:
            raise ValueError(f"every is {plan.every}")
        if not 0 < plan.chunks <= len(plan.stages) or len(plan.stages) % plan.chunks:
            raise ValueError(f"{len(plan.stages)} stages in {plan.chunks} chunks")
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise BadProfile(f"is not a complete plan ({error}): write it again with spotctl parallel plan") from None
    return plan
