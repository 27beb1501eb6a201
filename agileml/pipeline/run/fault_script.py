"""Faults at given updates, for trying out what an elastic pipeline survives."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agileml.engines.chaos import WARNING_SECONDS, Act, Evict, Join, KillNodes, RunningMachine
from agileml.errors import BadArgument

_FAULT = re.compile(r"(kill|warn|join) (\d+)")


@dataclass
class FaultScript:
    """Kills or warns the node of the first seat, or adds a node, once each update is reached."""

    faults: list[tuple[int, str]]
    seated: tuple[str, ...] = ()
    """The nodes of the present epoch, by seat."""

    def due(self, clock: int, seconds: float, machines: Sequence[RunningMachine]) -> Sequence[Act]:  # noqa: ARG002
        staying = {machine.name for machine in machines if not machine.warned}
        nodes = [node for node in self.seated if node in staying]
        acts: list[Act] = []
        while self.faults and self.faults[0][0] <= clock and (nodes or self.faults[0][1] == "join"):
            _, kind = self.faults.pop(0)
            acts.append(Join(1) if kind == "join" else _taken(kind, nodes.pop(0)))
        return acts


def _taken(kind: str, node: str) -> Act:
    return KillNodes((node,)) if kind == "kill" else Evict((node,), WARNING_SECONDS)


def parse_faults(text: str) -> FaultScript:
    """The script of a text such as `kill 5, warn 9, join 12`."""
    faults = []
    for part in filter(None, (word.strip() for word in text.split(","))):
        matched = _FAULT.fullmatch(part)
        if not matched:
            raise BadArgument(f"fault {part!r}: write kill, warn or join and the number of an update, such as 'kill 5'")
        faults.append((int(matched[2]), matched[1]))
    return FaultScript(sorted(faults))
