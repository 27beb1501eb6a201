"""Runs of one home share the quotas of its settings, and a run uses more of them when another
ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.library import Selection
from spotctl.clouds.wiring import library
from spotctl.files.job.reader import load, written
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.home.quotas import quotas_from
from spotctl.log import events as ev
from spotctl.log.outcomes import DONE
from spotctl.log.store import EventLog
from spotctl.planning.facts import replay_start
from spotctl.run.start.launch_plans import plan_of_run, stored_plans
from spotctl.run.start.live_markets import begin_market
from spotctl.run.start.runs import begin_run
from spotctl.run.start.stored_facts import read_account
from spotctl.run.turn.execute import Journal
from tests.spotctl.command_line import spotctl
from tests.spotctl.run.worlds import LEASE_TIMES, MARKETS, ON_DEMAND, START

JOB = """\
name: mine
kind: agileml
app: mf
stop: {clocks: 100}
throughputs: {c4.xlarge: 40}
resources: {clouds: [local], types: [c4.xlarge], machines: 1..16, reliable: {machines: 1}}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        home=tmp_path, quotas=quotas_from("local=10 machines, local on demand=3 machines")
    )


def other_run(settings: Settings, machines: int) -> None:
    """A run of another job that holds spot machines and has ordered one more; an on-demand machine
    does not count.
    """
    with EventLog(Paths(settings.home).log) as log:
        journal = Journal(log, "other-1", lambda: START)
        journal.write(ev.RunBegan("other", "local", {}, "", 0, None, "local=10 machines"))
        for intent, (count, bid) in enumerate(((machines, 100_000_000), (1, None)), 1):
            journal.write(
                ev.RentIntended(
                    intent,
                    MARKETS[0],
                    count,
                    bid,
                    ON_DEMAND,
                    4.0,
                    bid is None,
                    START + LEASE_TIMES.lease,
                )
            )
            names = tuple(ev.Granted(f"m{intent}-{i}", START) for i in range(count))
            journal.write(ev.Rented(intent, names))
        journal.write(
            ev.RentIntended(
                3, MARKETS[1], 1, 100_000_000, ON_DEMAND, 4.0, False, START + LEASE_TIMES.lease
            )
        )


def end_other_run(settings: Settings) -> None:
    with EventLog(Paths(settings.home).log) as log:
        log.append("other-1", START, ev.RunEnded(DONE, "", 0, {}))


def test_a_plan_leaves_what_running_jobs_hold(settings: Settings, tmp_path: Path) -> None:
    catalog = library(settings).catalog
    assert read_account(settings, START).left(catalog) == settings.quotas
    other_run(settings, 5)
    held = read_account(settings, START)
    (remark,) = held.remarks(catalog)
    assert [quota.amount for quota in held.left(catalog)] == [4, 2]
    assert remark == "quota local: 6 machines are held by running jobs (other), 4 are left"
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    shown = spotctl(
        "plan", file, "--json", SPOTCTL_HOME=str(settings.home), SPOTCTL_QUOTAS="local=10 machines"
    )
    assert sum(one["machines"] for one in shown.json["choice"]) <= 4
    end_other_run(settings)
    ended = read_account(settings, START)
    assert (ended.left(catalog), ended.remarks(catalog)) == (settings.quotas, ())


def test_the_plan_of_a_run_follows_its_part_and_stays_in_its_region(
    settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    began = ev.RunBegan("mine", "local", written(load(file)), "", 0, None, "local=4 machines")
    known = library(settings)
    started = replay_start(known.table(known.require(Selection(clouds=("local",)))))
    few = plan_of_run(began, settings, started)
    place = few.cost.choice[0].rent.offer.market
    more = plan_of_run(began, settings, started, "local=10 machines", (place.cloud, place.region))
    assert sum(one.rent.machines for one in few.cost.choice) == 4
    assert sum(one.rent.machines for one in more.cost.choice) == 10


def test_a_launch_keeps_its_part_of_the_on_demand_quotas_for_every_later_process(
    settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB + "deadline: 500h\n")
    spec = load(file)
    (plan,) = stored_plans([spec], settings).plans
    begin_market(spec, settings)
    with EventLog(Paths(settings.home).log) as log:
        journal, _ = begin_run(spec, settings, log, plan=plan)
        began = journal.state.began
    assert began is not None
    assert began.quotas == "local=10 machines, local on demand=3 machines"
    assert plan_of_run(began, settings, plan.at).decider.fallback == plan.decider.fallback
    assert plan.decider.fallback.machines == 2 < plan.decider.baseline.machines
