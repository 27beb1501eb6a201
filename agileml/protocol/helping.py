"""Messages between workers that lend each other work.

Links keep their order, so the number of an assignment does what the papers use timestamps for: a cancellation cannot
overtake the assignment that it cancels.
"""

from dataclasses import dataclass

from agileml.work.covers import Cover


@dataclass(frozen=True, slots=True)
class HelpGroup:
    """From the controller: the workers that the receiver may help, to which it reports its progress."""

    epoch: int
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """A worker has done `progress` clocks, counting the part of the current one, when its timer showed `timer`.

    At the speed of its last chunk a clock takes it `pace` seconds of work; 0: another report follows at its end.
    """

    epoch: int
    worker: str
    progress: float
    timer: float
    pace: float


@dataclass(frozen=True, slots=True)
class DoThis:
    """Do these chunks for `worker`, unless it cancels this assignment before they are begun."""

    epoch: int
    worker: str
    number: int
    clock: int
    covers: tuple[Cover, ...]


@dataclass(frozen=True, slots=True)
class BegunHelping:
    """The first chunk of an assignment is being computed: it can no longer be cancelled."""

    epoch: int
    worker: str
    number: int


@dataclass(frozen=True, slots=True)
class CancelHelp:
    """Do not begin this assignment. `HelpEnded` answers, so that both sides agree on what was done."""

    epoch: int
    worker: str
    number: int


@dataclass(frozen=True, slots=True)
class HelpEnded:
    """An assignment is over. The chunks in `left` were not done, and are the owner's again; mostly none or all."""

    epoch: int
    worker: str
    number: int
    left: tuple[Cover, ...]


@dataclass(frozen=True, slots=True)
class Helped:
    """To the controller: what a node has done for others in a clock, for the iteration log."""

    node: str
    epoch: int
    clock: int
    items: int
    seconds: float
