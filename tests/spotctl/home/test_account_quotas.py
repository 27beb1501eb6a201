"""Quotas that clouds stated are kept for a day, and the settings go before them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pricing_data.units import DAY, HOUR
from spotctl.clouds.wiring import library
from spotctl.files.job.reader import load
from spotctl.home import account_quotas
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.home.quotas import quotas_from
from spotctl.planning.errors import NotInTime
from spotctl.planning.values import JobPlan
from spotctl.run.start.launch_plans import stored_plans
from spotctl.run.start.stored_facts import read_account

JOB = """\
name: mine
kind: agileml
app: mf
stop: {clocks: 100}
throughputs: {c4.xlarge: 40}
resources: {clouds: [local], types: [c4.xlarge], machines: 3..16, reliable: {machines: 1}}
"""
NOW = 1_800_000_000_000_000
STATED = quotas_from("aws/us-east-1/g+vt=64, gcp/us-central1/a2-highgpu=8 GPUs")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", quotas=quotas_from("azure/eastus=100"))


def test_what_a_cloud_stated_holds_for_a_day(settings: Settings) -> None:
    account_quotas.keep(settings, STATED, NOW)
    account_quotas.keep(settings, quotas_from("aws/us-east-1/g+vt=32"), NOW + HOUR)
    known = account_quotas.known(settings, NOW + HOUR)
    assert set(known) == {*settings.quotas, STATED[1], *quotas_from("aws/us-east-1/g+vt=32")}
    assert len(account_quotas.known(settings, NOW + DAY)) == 2
    assert account_quotas.known(settings, NOW + DAY + HOUR) == settings.quotas
    assert set(read_account(settings, NOW + HOUR).left(library(settings).catalog)) == set(known)


def test_the_settings_state_a_quota_in_place_of_the_cloud(settings: Settings) -> None:
    account_quotas.keep(settings, STATED, NOW)
    own = replace(settings, quotas=quotas_from("aws/us-east-1/g+vt=128"))
    assert account_quotas.known(own, NOW) == (*own.quotas, STATED[1])


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"aws": 3}', '{"a/b/c/d": {"amount": "3", "read": 1}}']
)
def test_a_file_that_cannot_be_read_holds_nothing(settings: Settings, text: str) -> None:
    account_quotas.keep(settings, STATED, NOW)
    Paths(settings.home).quotas.write_text(text)
    assert account_quotas.stated(settings, NOW) == []
    account_quotas.keep(settings, STATED, NOW)
    assert len(account_quotas.stated(settings, NOW)) == 2


def test_on_demand_machines_have_quotas_of_their_own(settings: Settings) -> None:
    account_quotas.keep(
        settings,
        quotas_from("aws/us-east-1=64, aws/us-east-1 on demand=8, gcp on demand=2 GPUs"),
        NOW,
    )
    assert [str(one) for one in account_quotas.known(settings, NOW, spot=False)] == [
        "aws/us-east-1 on demand=8 vCPUs",
        "gcp on demand=2 GPUs",
    ]
    assert [str(one) for one in account_quotas.known(settings, NOW)] == [
        "azure/eastus=100 vCPUs",
        "aws/us-east-1=64 vCPUs",
    ]


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
