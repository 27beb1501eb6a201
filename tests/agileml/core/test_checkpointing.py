"""When the controller requests checkpoints, and which ones count."""

from __future__ import annotations

from agileml.core.controller_state import Mode
from agileml.core.events import (
    NodeLost,
)
from agileml.protocol.actions import Send
from agileml.protocol.messages import (
    Restored,
    Saved,
    Stable,
)
from tests.agileml.core.control import committed, handle, join, mode_of, running


def test_a_checkpoint_is_requested_every_n_clocks_and_counts_when_complete() -> None:
    control = running("r", "t", checkpoint_every=2)
    assert Send("r", Stable(1, 1, checkpoint=False)) in committed(control, 1)
    assert Send("r", Stable(1, 2, checkpoint=True)) in committed(control, 2)
    handle(control, Saved("r", 1, 0, 2))
    assert control.checkpoints.latest == -1
    handle(control, Saved("r", 1, 1, 2))
    assert control.checkpoints.latest == 2


def test_no_checkpoint_is_requested_while_one_is_written_unless_it_is_overdue() -> None:
    control = running("r", "t", clocks=20, checkpoint_every=1)
    requested = []
    for clock in range(1, 12):
        requested += [clock] * (Send("r", Stable(1, clock, checkpoint=True)) in committed(control, clock))
        if clock == 3:
            handle(control, Saved("r", 1, 0, 1), Saved("r", 1, 1, 1))
    assert requested == [1, 4, 8]


def test_a_checkpoint_never_mixes_versions_from_before_and_after_a_rollback() -> None:
    control = running("r", "t", checkpoint_every=2)
    committed(control, 1)
    committed(control, 2)
    handle(control, Saved("r", 1, 0, 2))
    handle(control, NodeLost("r", "killed"))
    assert mode_of(control) is Mode.GATHERING
    join(control, "r2")
    assert (control.epoch, control.stable) == (2, 0)
    handle(control, *(Restored(name, 2) for name in ("r2", "t")))
    handle(control, Saved("r2", 2, 1, 2))
    assert control.checkpoints.latest == -1
    handle(control, Saved("r2", 2, 0, 2))
    assert control.checkpoints.latest == 2
