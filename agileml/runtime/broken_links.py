"""Nodes that reach the controller but not each other: one of them has to go, or the job would wait for ever."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from agileml.core.members import Members


@dataclass(frozen=True, slots=True)
class Unlinked:
    """From a node to the controller: its link to a peer broke, or it does not get one."""

    node: str
    peer: str
    reason: str


@dataclass(frozen=True, slots=True)
class _BrokenLink:
    epoch: int
    at: float
    reason: str


class BrokenLinks:
    """Broken links between nodes that are both alive. What was in flight on them is lost, so a recovery must follow.

    The end of a process or a machine breaks links, too; `grace` is the time in which that becomes known.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._reports: dict[tuple[str, str], _BrokenLink] = {}

    def report(self, unlinked: Unlinked, epoch: int, now: float) -> None:
        """Notes a link; the first report of an epoch counts."""
        key = unlinked.node, unlinked.peer
        if key not in self._reports or self._reports[key].epoch != epoch:
            self._reports[key] = _BrokenLink(epoch, now, unlinked.reason)

    def victim(self, members: Members, epoch: int, now: float) -> tuple[str, str] | None:
        """The node to give up, and why: the one with most broken links, of two transient nodes the younger."""
        self._reports = {
            pair: report
            for pair, report in self._reports.items()
            if report.epoch == epoch and all(map(members.alive, pair))
        }
        overdue = [pair for pair, report in self._reports.items() if now - report.at > self._grace]
        if not overdue:
            return None
        broken = Counter(name for pair in {frozenset(pair) for pair in self._reports} for name in pair)
        name = max({name for pair in overdue for name in pair}, key=lambda name: _rank(members, broken, name))
        (node, peer), report = next((pair, self._reports[pair]) for pair in overdue if name in pair)
        return name, f"no link between {node} and {peer}: {report.reason}"


def _rank(members: Members, broken: Mapping[str, int], name: str) -> tuple[int, bool, int]:
    member = members[name]
    return broken[name], not member.reliable, member.rank
