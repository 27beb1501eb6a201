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


class BrokenLinks:
    """Broken links between nodes that are both alive. What was in flight on them is lost, so a recovery must follow.

    The end of a process or a machine breaks links, too; `grace` is the time in which that becomes known.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._epoch = 0
        self._reports: dict[tuple[str, str], tuple[float, str]] = {}
        """By link that broke in this epoch, when and why."""

    def report(self, unlinked: Unlinked, epoch: int, now: float) -> None:
        """Notes a link; the first report of an epoch counts."""
        self._turn(epoch)
        self._reports.setdefault((unlinked.node, unlinked.peer), (now, unlinked.reason))

    def victim(self, members: Members, epoch: int, now: float) -> tuple[str, str] | None:
        """The node to give up, and why: the one with most broken links, of two transient nodes the younger."""
        self._turn(epoch)
        self._reports = {pair: seen for pair, seen in self._reports.items() if all(map(members.alive, pair))}
        overdue = [pair for pair, (at, _) in self._reports.items() if now - at > self._grace]
        if not overdue:
            return None
        broken = Counter(name for pair in {frozenset(pair) for pair in self._reports} for name in pair)
        name = max({name for pair in overdue for name in pair}, key=lambda name: _rank(members, broken, name))
        node, peer = next(pair for pair in overdue if name in pair)
        return name, f"no link between {node} and {peer}: {self._reports[node, peer][1]}"

    def _turn(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._epoch = epoch
            self._reports.clear()


def _rank(members: Members, broken: Mapping[str, int], name: str) -> tuple[int, bool, int]:
    member = members[name]
    return broken[name], not member.reliable, member.rank
