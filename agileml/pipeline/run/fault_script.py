"""Faults at given updates, for trying out what an elastic pipeline survives."""

import re
from dataclasses import dataclass

from agileml.errors import BadArgument
from agileml.pipeline.run.local import LocalPipeline

_FAULT = re.compile(r"(kill|warn|join) (\d+)")


@dataclass
class FaultScript:
    """Kills or warns the node of the first seat, or adds a node, once each update is reached."""

    faults: list[tuple[int, str]]

    def after_batch(self, pipeline: LocalPipeline) -> None:
        while self.faults and self.faults[0][0] <= pipeline.controller.batch:
            batch, kind = self.faults.pop(0)
            if kind == "join":
                pipeline.join(f"joined{batch}")
                continue
            node = pipeline.controller.history[-1].nodes[0]
            (pipeline.kill if kind == "kill" else pipeline.warn)(node)


def parse_faults(text: str) -> FaultScript:
    """The script of a text such as `kill 5, warn 9, join 12`."""
    faults = []
    for part in filter(None, (word.strip() for word in text.split(","))):
        matched = _FAULT.fullmatch(part)
        if not matched:
            raise BadArgument(f"fault {part!r}: write kill, warn or join and the number of an update, such as 'kill 5'")
        faults.append((int(matched[2]), matched[1]))
    return FaultScript(sorted(faults))
