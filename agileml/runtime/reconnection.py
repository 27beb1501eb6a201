"""Links that break: the way back to the controller, and nodes that reach the controller but not
each other.
"""

import time
from collections import Counter

from agileml.core.members import Members
from agileml.protocol.actions import CONTROLLER
from agileml.protocol.messages import Unlinked
from agileml.runtime.mailbox import Mailbox
from agileml.transport import Connected, Lost, Rejected

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
"""Seconds between attempts to reach the controller; each pause is twice as long as the one
before."""


class ControllerConnection:
    """Keeps a link to the controller open: reconnects, with growing pauses, whenever it is lost."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._pause = FIRST_PAUSE
        self._next: float | None = time.monotonic()
        self._away_since: float | None = self._next

    def maintain(self, now: float) -> None:
        """Connects if the pause after the last failure is over."""
        if self._next is not None and now >= self._next:
            self._next = None
            self._mailbox.reach(CONTROLLER)

    def handle(self, event: Connected | Lost | Rejected, now: float) -> bool:
        """Notes a change of the link; True if it has just been established."""
        if event.peer != CONTROLLER:
            return False
        if isinstance(event, Connected):
            self._pause = FIRST_PAUSE
            self._away_since = None
            return True

        self._away_since = now if self._away_since is None else self._away_since
        self._next = now + self._pause
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return False

    @property
    def linked(self) -> bool:
        """Whether there is a link."""
        return self._away_since is None

    def away(self, now: float) -> float:
        """Seconds without a link."""
        if self._away_since is None:
            return 0.0
        return now - self._away_since

    def timeout(self, now: float, longest: float) -> float:
        """The longest time to wait for messages without being late for the next attempt."""
        if self._next is None:
            return longest
        return max(0.0, min(longest, self._next - now))


class BrokenLinks:
    """Broken links between nodes that are both alive: one of them has to go, or the job would wait
    for ever.

    What was in flight on them is lost, so a recovery must follow. The end of a process or a machine
    breaks links, too; `grace` is the time in which that becomes known.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._epoch = 0
        self._reports: dict[tuple[str, str], tuple[float, Unlinked]] = {}
        """By link that broke in this epoch, when and what was reported."""
        self._believed: set[str] = set()
        """Nodes because of whose word another node was given up. A second word counts against
        them."""

    def report(self, unlinked: Unlinked, epoch: int, now: float) -> None:
        """Notes a link; the first report of an epoch counts."""
        self._turn(epoch)
        self._reports.setdefault((unlinked.node, unlinked.peer), (now, unlinked))

    def victim(self, members: Members, epoch: int, now: float) -> tuple[str, str] | None:
        """The node to give up, and why: the one with most broken links; of two, the one that the
        other accuses of misconduct; of two transient nodes the younger.

        Which of two nodes lies cannot be told: a node can have one other given up, and is the next
        itself.
        """
        self._turn(epoch)
        for pair in list(self._reports):
            if not all(map(members.alive, pair)):
                del self._reports[pair]
        overdue = [pair for pair, (at, _) in self._reports.items() if now - at > self._grace]
        if not overdue:
            return None

        # Both ends may have reported a link.
        links = {frozenset(pair) for pair in self._reports}
        broken = Counter(name for link in links for name in link)
        accusers = {pair for pair, (_, report) in self._reports.items() if report.misconduct}
        guilty = {node if node in self._believed else peer for node, peer in accusers}
        worst = {}
        for name in {name for pair in overdue for name in pair}:
            member = members[name]
            worst[name] = broken[name], name in guilty, not member.reliable, member.rank
        victim = max(worst, key=worst.__getitem__)

        self._believed.update(node for node, peer in accusers if peer == victim)
        node, peer = next(pair for pair in overdue if victim in pair)
        _, report = self._reports[node, peer]
        return victim, f"no link between {node} and {peer}: {report.reason}"

    def _turn(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._epoch = epoch
            self._reports.clear()
