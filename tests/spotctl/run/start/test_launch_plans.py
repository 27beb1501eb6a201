"""Plans of launches within the quotas of a cloud."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.files.job.reader import load
from spotctl.home.config import Settings
from spotctl.home.quotas import quotas_from
from spotctl.planning.errors import NotInTime
from spotctl.planning.values import JobPlan
from spotctl.run.start.launch_plans import stored_plans

JOB = """\
name: mine
kind: agileml
app: mf
stop: {clocks: 100}
throughputs: {c4.xlarge: 40}
resources: {clouds: [local], types: [c4.xlarge], machines: 3..16, reliable: {machines: 1}}
"""


def test_an_on_demand_quota_limits_what_is_not_spot(tmp_path: Path) -> None:
    """The job has one reliable machine, and with a deadline it may turn to 3 to 16 on-demand
    machines.
    """
    job = tmp_path / "job.yaml"

    def planned(quota: str, more: str = "") -> tuple[JobPlan, list[str]]:
        job.write_text(JOB.replace("100", "4000") + more)
        settings = Settings(home=tmp_path / "home", quotas=quotas_from(quota))
        found = stored_plans([load(job)], settings)
        return found.plans[0], [one for one in found.remarks if "quota" in one]

    with pytest.raises(
        NotInTime,
        match=r"^mine: the on-demand machines need 1 machines of quota local/sim-east/c4 on",
    ):
        planned("local/*/c4 on demand=0 machines")
    assert planned("local on demand=1 machines, aws on demand=0")[1] == []
    with pytest.raises(
        NotInTime,
        match=r"^mine: strategy on-demand needs at least 3 .* local on demand has room for 2; raise it",
    ):
        planned("local on demand=3 machines", "strategy: on-demand\n")
    full, remarks = planned("local on demand=17 machines", "strategy: lookahead\ndeadline: 500h\n")
    assert (full.decider.fallback.machines, remarks) == (16, [])
    may_turn = (
        "mine: quota local on demand allows {} of the 16 on-demand c4.xlarge that the job may "
        "switch to, {};"
    )
    for deadline, left, most, means in (
        ("500h", 9, 8, "so the job switches to on-demand earlier"),
        ("10h", 9, 8, "so without spot the job would miss its deadline"),
        ("500h", 3, 0, "so the job can only wait for spot, and may miss its deadline"),
    ):
        plan, (remark,) = planned(
            f"local on demand={left} machines", f"strategy: lookahead\ndeadline: {deadline}\n"
        )
        assert plan.decider.fallback.machines == most
        assert remark.startswith(may_turn.format(most or "too few", means))
        assert [one.rent for one in plan.cost.choice] == [one.rent for one in full.cost.choice]
    half, _ = planned("local on demand=9 machines", "deadline: 500h\n")
    assert half.cost.on_demand.hours > full.cost.on_demand.hours
