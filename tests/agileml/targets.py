"""What fault schedules aim at: every event right after every kind of message, in every stage; and how to get there."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from functools import cache

from agileml.protocol import messages

STAGES = (1, 2, 3)

EVENTS = (
    "join",
    "join reliable",
    "warn one",
    "warn half",
    "warn all",
    "warn reliable",
    "kill one",
    "kill half",
    "kill all",
    "kill reliable",
    "kill everything",
    "suspect one",
    "kill controller",
    "two at once",
)
"""`one`, `half` and `all` are of the transient nodes; `everything` is all nodes, but not the controller.

Who is suspected is taken for lost, but lives and goes on.
"""

VALUES = {"Entry", "PartitionUpdate", "Tally", "Version", "PendingPush", "Waiting", "Table"}
"""What messages are made of."""

NEVER_SENT = {
    "Heartbeat": "in virtual time a node that lives is heard without a message",
    "Broken": "the trainer of the schedules does nothing wrong",
}

KINDS = tuple(
    sorted(
        name
        for name, kind in vars(messages).items()
        if isinstance(kind, type) and is_dataclass(kind) and name not in VALUES | NEVER_SENT.keys()
    )
)


@dataclass(frozen=True, order=True)
class Target:
    """An event right after a message of a kind has been delivered in a stage."""

    stage: int
    event: str
    kind: str


@cache
def targets() -> tuple[Target, ...]:
    """Everything that can occur."""
    return tuple(Target(stage, event, kind) for kind in KINDS for stage in STAGES for event in EVENTS)


Footprints = tuple[tuple[int, int], ...]

AT_START: dict[int, Footprints] = {
    1: ((1, 1), (2, 1), (2, 2), (3, 2)),
    2: ((1, 2), (1, 3), (2, 3), (2, 5)),
    3: ((1, 4), (1, 5), (2, 7)),
}
"""Reliable and transient nodes, by stage."""

ROOMY: dict[int, Footprints] = {1: ((2, 2), (3, 3)), 2: ((1, 3), (2, 5)), 3: ((1, 5), (1, 6))}
"""Stay in their stage when one transient node goes, and there are others whom something can befall then."""

ABOVE: dict[int, Footprints] = {1: ((1, 2), (2, 3), (2, 4)), 2: ((1, 4), (2, 7)), 3: ((1, 5), (1, 6))}
"""Fall into the stage when a few transient nodes go; of stage 3 nothing is above."""


AMONG_RELIABLE: Footprints = ((2, 2), (3, 3), (2, 3))
"""In stage 1 a version is asked for only where partitions move between reliable nodes while another node is lost."""


@dataclass(frozen=True)
class Way:
    """How messages of some kinds come about: from which footprints, by what, and how many deliveries apart at least.

    Without causes they come by themselves, as long as the stage lasts: only the footprint is brought back.
    `settled`: only once a version is stable; before, nobody has to ask for it. `at`: right after such a message.
    """

    kinds: str
    start: dict[int, Footprints]
    causes: tuple[str, ...]
    apart: int = 4
    settled: bool = False
    at: str | None = None


WAYS = (
    Way("Drain Drained EndOfLife EndOfLifeSeen Leave Warned", ROOMY, ("warn one",)),
    Way("Adopted TakeShard GiveShard", ROOMY, ("join", "warn one")),
    Way("Hello Ready Enter Reads", AT_START, ("join", "join reliable")),
    Way("Patch", {1: ((1, 2), (2, 3))}, ("warn half", "warn one"), at="Patch"),
    Way(
        "Move Handover Taken Route Routed",
        {1: ((2, 2), (3, 3), (1, 2))},
        ("join reliable", "warn reliable", "warn one"),
    ),
    Way("Move Handover Taken Route Routed Patch", ABOVE, ("warn one", "warn half", "join reliable", "join")),
    Way("NeedVersion Restore", {3: ((1, 5), (1, 6))}, ("kill one",), 4, True),
    Way("NeedVersion Restore", {1: AMONG_RELIABLE}, ("kill one", "join reliable", "kill controller"), 1, True),
    Way("NeedVersion Restore", ABOVE, ("kill one", "kill half", "join reliable", "kill controller"), 1, True),
    Way("Recover Restored", ROOMY, ("kill one", "kill controller")),
    Way("Collect Collected Limit PartitionProgress Pull Push Saved Snapshot Stable WorkDone", AT_START, ()),
)


def way_to(target: Target) -> Way:
    """What to do for a target to be reached."""
    return next(way for way in WAYS if target.kind in way.kinds.split() and target.stage in way.start)


ONCE = ("Limit", "Collect", "Collected")
"""Come at one moment of a job only, at its end."""

FROM_THE_START = ("Hello", "Ready", "Recover", "Restored", "Reads")
"""Come when a job begins; what befalls it then is not all that is of interest."""

RARE = ("NeedVersion", "Restore", "Patch")
"""Many schedules that aim at these miss: two things have to meet."""


@cache
def aims() -> tuple[Target, ...]:
    """All targets, those that do not come by themselves more often."""
    sought = [target for target in targets() if way_to(target).causes]
    rare = [target for target in sought if target.kind in RARE]
    plain = [target for target in targets() if not way_to(target).causes]
    return (*plain * 2, *sought * 3, *rare * 6)


def target_of(seed: int) -> Target | None:
    """What a seed aims at; every tenth at nothing in particular."""
    if seed % 10 == 0:
        return None
    return aims()[seed * 9 // 10 % len(aims())]
