"""Targets of fault schedules: every event right after every kind of message in every stage, and how
to reach them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import get_args

from agileml.core.controller import Controller
from agileml.core.recovery import Mode
from agileml.protocol import messages
from agileml.roles.work_exchange import HelpMessage

START_UP, RESUMING, GATHERING = 0, 4, 5
STAGES = (1, 2, 3)
PHASES = {
    START_UP: "start-up",
    **{stage: f"stage {stage}" for stage in STAGES},
    RESUMING: "resuming",
    GATHERING: "gathering",
}
"""Start-up ends with the first epoch. A restarted controller resumes; one without a reliable node
gathers."""


def phase_of(controller: Controller) -> int:
    """The phase of a job: its stage, if it is training."""
    if not controller.epoch:
        return START_UP
    return {Mode.RESUMING: RESUMING, Mode.GATHERING: GATHERING}.get(
        controller.epochs.mode, controller.stages.stage
    )


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
    "warn joining",
    "kill joining",
    "kill controller",
    "two at once",
)
"""`one`, `half` and `all` are of the transient nodes; `everything` is all nodes, but not the
controller.

`joining`: a machine that has just been started, so that its first message may be lost or come later
than the event. A suspected node is declared lost, but is alive and continues.
"""

VALUES = {"UpdateEntry", "PartitionUpdate", "Tally", "Version", "PendingPush", "Waiting", "Table"}
"""Parts of messages."""

NEVER_SENT = {
    "Heartbeat": "in virtual time nodes need no heartbeats",
    "Broken": "the trainer of the schedules does not fail",
    "Unlinked": "in virtual time the simulation itself notices links that break",
}

STRAGGLERS = {
    kind.__name__
    for kind in (
        *get_args(HelpMessage),
        messages.Helped,
        messages.ServerTimed,
        messages.Accept,
        messages.Contributed,
        messages.GradientSums,
    )
}
"""Sent only by jobs that take measures against stragglers, which have schedules of their own."""

CLIPPING = ("SquareOfPart", "SquareOfAll")
"""Sent only by jobs that clip updates by their norm, which have schedules of their own, too."""

KINDS = tuple(
    sorted(
        name
        for name, kind in vars(messages).items()
        if isinstance(kind, type)
        and is_dataclass(kind)
        and name not in {*VALUES, *STRAGGLERS, *CLIPPING, *NEVER_SENT}
    )
)


OUTSIDE = {
    START_UP: ("Hello", "Ready", "Warned"),
    RESUMING: ("Hello", "Ready", "Warned", "Push", "Pull", "Snapshot"),
    GATHERING: ("Hello", "Ready", "Warned"),
}
"""The kinds of messages that are delivered often while a job is not training."""


@dataclass(frozen=True, order=True)
class Target:
    """An event right after a message of a kind has been delivered in a phase."""

    stage: int
    event: str
    kind: str


@cache
def targets() -> tuple[Target, ...]:
    """All targets."""
    training = [
        Target(stage, event, kind) for kind in KINDS for stage in STAGES for event in EVENTS
    ]
    outside = [
        Target(phase, event, kind)
        for phase, kinds in OUTSIDE.items()
        for kind in kinds
        for event in EVENTS
    ]
    return (*training, *outside)


Footprints = tuple[tuple[int, int], ...]

AT_START: dict[int, Footprints] = {
    1: ((1, 1), (2, 1), (2, 2), (3, 2)),
    2: ((1, 2), (1, 3), (2, 3), (2, 5)),
    3: ((1, 4), (1, 5), (2, 7)),
}
"""Reliable and transient nodes, by stage."""

ROOMY: dict[int, Footprints] = {1: ((2, 2), (3, 3)), 2: ((1, 3), (2, 5)), 3: ((1, 5), (1, 6))}
"""Remain in their stage when one transient node leaves, with others left to be affected."""

ABOVE: dict[int, Footprints] = {
    1: ((1, 2), (2, 3), (2, 4)),
    2: ((1, 4), (2, 7)),
    3: ((1, 5), (1, 6)),
}
"""Enter the stage when a few transient nodes leave; there is nothing above stage 3."""


AMONG_RELIABLE: Footprints = ((2, 2), (3, 3), (2, 3))
"""In stage 1 a version is requested only if partitions move between reliable nodes while another
node is lost."""


@dataclass(frozen=True)
class Way:
    """How to provoke some kinds of messages: initial footprints, causes, and the least deliveries
    between causes.

    `+` joins events that happen at once. Without causes the messages occur by themselves as long as
    the stage lasts: only the footprint is restored. `settled`: only once a version is stable. `at`:
    right after a message of this kind.
    """

    kinds: str
    start: dict[int, Footprints]
    causes: tuple[str, ...]
    apart: int = 4
    settled: bool = False
    at: str | None = None


ANY_START = (*AT_START[1], *AT_START[2], *AT_START[3])
FEW_RELIABLE: Footprints = ((1, 1),)
"""Without its only reliable node, a job in stage 1 waits for another."""

WAYS = (
    Way("Hello Ready", {START_UP: ANY_START}, ()),
    Way("Warned", {START_UP: ANY_START}, ("warn one", "warn joining", "warn reliable"), 1),
    Way("Warned", {RESUMING: ANY_START}, ("warn one", "kill controller", "kill controller"), 1),
    Way("Hello Ready Push Pull Snapshot", {RESUMING: ANY_START}, ("kill controller",)),
    Way(
        "Warned",
        {GATHERING: FEW_RELIABLE},
        ("kill reliable+warn joining", "kill reliable+warn one"),
        1,
    ),
    Way("Hello Ready", {GATHERING: FEW_RELIABLE}, ("kill reliable+join",), 1),
    Way("Drain Drained EndOfLife EndOfLifeSeen Leave Warned", ROOMY, ("warn one",)),
    Way("Adopted TakeShard GiveShard", ROOMY, ("join", "warn one")),
    Way("Hello Ready Enter Reads", AT_START, ("join", "join reliable")),
    Way("Patch", {1: ((1, 2), (2, 3))}, ("warn half", "warn one"), at="Patch"),
    Way(
        "Move Handover Taken Route Routed",
        {1: ((2, 2), (3, 3), (1, 2))},
        ("join reliable", "warn reliable", "warn one"),
    ),
    Way(
        "Move Handover Taken Route Routed Patch",
        ABOVE,
        ("warn one", "warn half", "join reliable", "join"),
    ),
    Way("NeedVersion Restore", {3: ((1, 5), (1, 6))}, ("kill one",), 4, True),
    Way(
        "NeedVersion Restore",
        {1: AMONG_RELIABLE},
        ("kill one", "join reliable", "kill controller"),
        1,
        True,
    ),
    Way(
        "NeedVersion Restore",
        ABOVE,
        ("kill one", "kill half", "join reliable", "kill controller"),
        1,
        True,
    ),
    Way("Recover Restored", ROOMY, ("kill one", "kill controller")),
    Way("Collect Collected Evaluate Evaluated Limit", AT_START, ()),
    Way(
        "PartitionProgress Pull Push Saved Snapshot Stable WorkDone SquareOfPart SquareOfAll",
        AT_START,
        (),
    ),
)


def way_to(target: Target) -> Way:
    """How to reach a target."""
    return next(
        way for way in WAYS if target.stage in way.start and target.kind in way.kinds.split()
    )


ONCE = ("Limit", "Collect", "Collected", "Evaluate", "Evaluated")
"""Sent only once, at the end of a job."""

FROM_THE_START = ("Hello", "Ready", "Recover", "Restored", "Reads")
"""Sent when a job starts, but also interesting later."""

RARE = ("NeedVersion", "Restore", "Patch")
"""Many schedules miss these, because two events have to coincide."""


@cache
def aims() -> tuple[Target, ...]:
    """All targets; those whose messages must be provoked occur more often."""
    outside = [target for target in targets() if target.stage in OUTSIDE]
    sought = [target for target in targets() if way_to(target).causes and target.stage in STAGES]
    rare = [target for target in sought if target.kind in RARE]
    plain = [target for target in targets() if not way_to(target).causes and target.stage in STAGES]
    return (*outside * 5, *plain, *sought * 2, *rare * 5)


def target_of(seed: int) -> Target | None:
    """The target of a seed; every tenth has none."""
    if seed % 10 == 0:
        return None
    return aims()[seed * 9 // 10 % len(aims())]


def sought_by(first: int, last: int) -> set[Target]:
    """The targets that these seeds aim at as often as all seeds of a long run do; fewer attempts
    may miss them.
    """
    aimed = Counter(target_of(seed) for seed in range(first, last))
    return {target for target, often in Counter(aims()).items() if aimed[target] >= often}
