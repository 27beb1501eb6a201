"""`SplitRequest`: the input of the planner, and the devices in levels that it is for."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from agileml.checks import check_whole
from agileml.errors import BadArgument
from agileml.pipeline.profile.model_profile import OPTIMIZER_STATE, BadProfile, CostRules
from agileml.pipeline.schedule import schedules


@dataclass(frozen=True)
class SplitRequest:
    """Devices, batch and limits. `None` and "auto" leave the choice to the planner."""

    topology: Topology
    batch: int
    rules: CostRules = field(default_factory=CostRules)
    scheme: str = "auto"
    allow_delay: int = 0
    """Updates that a gradient may miss in a scheme that the planner chooses."""
    stages: int | None = None
    pipelines: int | None = None
    chunks: int | None = None
    recompute: bool | None = None
    tensor: int | None = None
    """Devices of a server that share each split layer; None compares 1 with the parts that the layers have."""

    def __post_init__(self) -> None:
        check_whole("batch", self.batch, 1)
        check_whole("allow_delay", self.allow_delay, 0)
        for name in ("stages", "pipelines", "chunks", "tensor"):
            if (wanted := getattr(self, name)) is not None:
                check_whole("replicas" if name == "pipelines" else name, wanted, 1)
        if self.scheme not in ("auto", *schedules.SCHEMES):
            raise BadArgument(f"scheme is {self.scheme!r}; choose from auto, {', '.join(schedules.SCHEMES)}")
        if self.rules.optimizer not in OPTIMIZER_STATE:
            raise BadArgument(f"optimizer is {self.rules.optimizer!r}; choose from {', '.join(OPTIMIZER_STATE)}")
        tensor = self.tensor or 1
        needed = (self.stages or 1) * (self.pipelines or 1) * tensor
        if needed > self.topology.devices:
            each = f" of {tensor} devices each" if tensor > 1 else ""
            raise BadArgument(
                f"{self.stages or 1} stages{each} in {self.pipelines or 1} pipelines need {needed} devices, and there"
                f" are {self.topology.devices}: use fewer stages or more devices"
            )

    def allows(self, scheme: str, stages: int) -> bool:
        """Whether the scheme was named, or delays no gradient more than allowed."""
        if self.scheme != "auto":
            return self.scheme == scheme
        return scheme not in ("gpipe", "vertical-sync") and schedules.delay(scheme, stages) <= self.allow_delay


@dataclass(frozen=True)
class Topology:
    """Level k has `counts[k]` components of level k-1, connected by links of `bandwidths[k]` bytes per second."""

    counts: tuple[int, ...]
    bandwidths: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.counts) != len(self.bandwidths) or not self.counts:
            raise BadProfile(
                f"{len(self.counts)} levels of devices but {len(self.bandwidths)} bandwidths: give one per level"
            )
        if min(self.counts) < 1 or not all(0 < bandwidth < float("inf") for bandwidth in self.bandwidths):
            raise BadProfile("every level needs at least one component and a bandwidth above 0")

    @property
    def devices(self) -> int:
        return prod(self.counts)

    def sizes(self) -> tuple[int, ...]:
        """Devices of one component of each level."""
        return tuple(prod(self.counts[: k + 1]) for k in range(len(self.counts)))

    def grouped(self, tensor: int) -> Topology:
        """Groups of `tensor` devices of one server as devices."""
        if self.counts[0] % tensor:
            raise BadProfile(
                f"tensor is {tensor}, and a server has {self.counts[0]} devices: use servers with a multiple of it"
            )
        return Topology((self.counts[0] // tensor, *self.counts[1:]), self.bandwidths)

    def slowest(self, first: int, last: int) -> float:
        """The bandwidth between devices `first` to `last`, counted from the end of the pipeline."""
        crossed = (size for size in self.sizes()[:-1] if first // size != last // size)
        levels = 1 + sum(1 for _ in crossed)
        return min(self.bandwidths[:levels])
