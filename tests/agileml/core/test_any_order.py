"""Events in any order leave the controller valid, or raise with the recent events."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from agileml.core.controller import Controller
from agileml.core.events import (
    Implausible,
    NodeLost,
    Tick,
)
from agileml.core.members import IN_EPOCH, NodePhase
from agileml.core.recovery import Mode
from agileml.errors import InvalidTransition
from agileml.protocol.messages import (
    Adopted,
    Drained,
    Heartbeat,
    Hello,
    PartitionProgress,
    Ready,
    Restored,
    Routed,
    Saved,
    Taken,
    Warned,
    WorkDone,
)
from tests.agileml.core.control import controller, join

NAMES = st.sampled_from(["r0", "r1", "t0", "t1", "t2", "t3"])
EPOCHS = st.integers(1, 4)
SMALL = st.integers(0, 1)
CLOCKS = st.integers(0, 6)
EVENTS = st.one_of(
    st.builds(lambda name: Hello(name, name[0] == "r", ""), NAMES),
    st.builds(Ready, NAMES),
    st.builds(Heartbeat, NAMES),
    st.builds(Warned, NAMES, st.just(5.0)),
    st.builds(NodeLost, NAMES, st.just("gone")),
    st.just(Tick()),
    st.builds(Restored, NAMES, EPOCHS),
    st.builds(Routed, NAMES, EPOCHS, st.integers(1, 8)),
    st.builds(Drained, NAMES, EPOCHS),
    st.builds(PartitionProgress, NAMES, EPOCHS, SMALL, CLOCKS, st.booleans()),
    st.builds(Taken, NAMES, EPOCHS, SMALL),
    st.builds(Adopted, NAMES, EPOCHS, st.integers(0, 3)),
    st.builds(WorkDone, NAMES, EPOCHS, st.integers(1, 6), st.integers(1, 8), *[st.just(0)] * 4),
    st.builds(Saved, NAMES, EPOCHS, SMALL, CLOCKS),
)


def check(control: Controller) -> None:
    table = control.table
    placed = {*table.owners, *table.backups, *table.workers} - {""}
    if control.epochs.mode in (Mode.RUNNING, Mode.RECOVERING):
        assert all(table.owners)
        assert all(table.workers)
        assert all(control.members.alive(name) for name in placed)
        assert all(control.members[name].phase is not NodePhase.DRAINING for name in placed)
        assert control.members.names(*IN_EPOCH)
    assert control.clocks.stable <= control.last_clock.limit
    assert all(
        backup != owner for owner, backup in zip(table.owners, table.backups, strict=True) if backup
    )


@settings(max_examples=150)
@given(st.integers(1, 2), st.integers(0, 3), st.lists(EVENTS, min_size=5, max_size=60))
def test_any_order_of_events_leaves_a_valid_state_or_raises_with_the_recent_events(
    reliable: int, transient: int, events: list[object]
) -> None:
    control = controller(reliable, transient)
    join(control, *[f"r{n}" for n in range(reliable)], *[f"t{n}" for n in range(transient)])
    for event in events:
        stable, epoch = control.clocks.stable, control.epoch
        try:
            control.handle(event, 0.0)
        except Implausible:
            # Nothing of it was taken.
            pass
        except InvalidTransition as error:
            if "recent events" not in str(error):
                raise
            return
        check(control)
        assert control.epoch > epoch or control.clocks.stable >= stable
