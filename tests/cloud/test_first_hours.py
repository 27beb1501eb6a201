"""First hours on hosts that cannot run the job: all but an account that may not rent end in its work,
for cents, after few machines.
"""

from __future__ import annotations

import pytest

from tests.cloud.first_hours import HOURS, passed

pytestmark = [pytest.mark.slow, pytest.mark.cloud]

# Of what a search leaves out, none is rented; of what breaks, each bad host is rented once at most.
MACHINES = {
    "old driver": 1,
    "slow line": 1,
    "slice with too little memory": 1,
    "pull of 15 minutes": 1,
    "out of credit": 0,
    "wrong key": 0,
}
LAST = {"out of credit": "add credit", "wrong key": "set VAST_API_KEY"}


@pytest.mark.parametrize("name", HOURS)
def test_a_first_hour_ends_in_work_or_in_a_line_that_says_what_to_do(name: str) -> None:
    outcome = passed(HOURS[name])
    assert outcome.machines <= MACHINES.get(name, 3)
    assert outcome.usd < 0.05
    assert LAST.get(name, "done (the command exited with status 0)") in outcome.last
