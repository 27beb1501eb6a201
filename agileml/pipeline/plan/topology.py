"""Devices in levels: devices of a server, servers of a rack, and the links at each level."""

from dataclasses import dataclass
from math import prod

from agileml.pipeline.profile.model_profile import BadProfile


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

    def grouped(self, tensor: int) -> "Topology":
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
