"""How a step judges the eviction that it asked for."""

from __future__ import annotations

import pytest

from pricing_data.units import SECOND
from spotctl.log.state import EVICTED, Held
from spotctl.run.trial.jobs import seen_of_eviction
from spotctl.run.trial.record import TrialFailed


def held(ended: int | None, reason: str, warned_until: int | None = None) -> Held:
    end = None if ended is None else ended * SECOND
    until = None if warned_until is None else warned_until * SECOND
    return Held(
        "aws:1", 1, 0, 900 * SECOND, ran=1, ended=end, end_reason=reason, warned_until=until
    )


def test_a_machine_that_was_warned_may_be_returned_before_it_is_taken() -> None:
    detail, figures = seen_of_eviction(held(150, "returned", 220), 100 * SECOND)
    assert detail == "saved and returned 50 s after the request, with a notice of 120 s"
    assert figures == {"end_seconds": 50.0, "notice_seconds": 120.0}


def test_a_machine_may_be_taken_with_and_without_a_notice() -> None:
    assert seen_of_eviction(held(220, EVICTED, 220), 100 * SECOND)[0].startswith("taken 120 s")
    assert (
        seen_of_eviction(held(101, EVICTED), 100 * SECOND)[0]
        == "taken 1 s after the request, without a notice"
    )


@pytest.mark.parametrize("machine", [held(150, "returned"), held(None, ""), held(None, "", 220)])
def test_a_machine_that_ended_otherwise_or_not_at_all_was_not_evicted(machine: Held) -> None:
    with pytest.raises(TrialFailed, match="neither warned nor evicted"):
        seen_of_eviction(machine, 100 * SECOND)
