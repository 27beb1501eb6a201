"""Runs that can get no machine, however long they wait, and clouds that do not answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE
from spotctl.clouds.errors import NotFound, PartlyListed, QuotaReached, Unanswered
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import Machine, MachineRequest
from spotctl.log import events as ev
from spotctl.run.turn.execute import Journal
from spotctl.run.turn.observe import hidden
from spotctl.run.turn.service import Runner, RunRules
from tests.spotctl.clouds.fake import Call, FakeProvider, Fault, Refusal
from tests.spotctl.run.faults import always, begun, clean, for_market
from tests.spotctl.run.worlds import (
    MARKETS,
    PRICES,
    RUN,
    START,
    Life,
    MemoryLog,
    environment,
    life,
    terms,
)

QUOTA = Refusal(QuotaReached("the quota is 0 vCPUs; request more"))


def of_kind(*, spot: bool) -> Callable[[Call], Fault | None]:
    def refused(call: Call) -> Fault | None:
        return (
            QUOTA
            if isinstance(call.asked, MachineRequest) and (call.asked.bid is not None) is spot
            else None
        )

    return refused


def ended_at_once(one: Life, reason: str) -> None:
    ended = one.run()
    assert (ended.outcome, reason in ended.message) == ("no capacity", True), ended
    assert one.cloud.now() - START < 10 * MINUTE
    clean(one)


@pytest.mark.parametrize("reliable", [0, 1])
def test_a_quota_of_zero_ends_a_run_at_once(tmp_path: Path, reliable: int) -> None:
    one = life(tmp_path)
    one.terms = terms(reliable)
    one.cloud.weather = always("create", QUOTA)
    ended_at_once(
        one, "the account may rent none of the machines that the job needs: the quota is 0 vCPUs"
    )


def test_a_job_needs_its_reliable_machine(tmp_path: Path) -> None:
    """Spot machines that came in the meantime are returned."""
    one = life(tmp_path)
    one.cloud.weather = of_kind(spot=False)
    ended_at_once(one, "the quota is 0 vCPUs")


def test_without_a_quota_for_spot_a_job_runs_on_demand(tmp_path: Path) -> None:
    one = life(tmp_path)
    one.cloud.weather = of_kind(spot=True)
    assert one.run().outcome == "done"
    assert {machine.bid for machine in one.cloud.everything} == {None}
    asked = [call.asked for call in one.world.calls("create") if one.cloud.weather(call)]
    assert len(asked) == len(MARKETS), "each market is asked once"


def test_a_quota_and_a_market_that_does_not_exist(tmp_path: Path) -> None:
    one = life(tmp_path)
    missing = for_market(0, Refusal(NotFound("no such market")))
    one.cloud.weather = lambda call: missing(call) or (QUOTA if call.name == "create" else None)
    ended_at_once(one, "the account may rent none of the machines")


def test_a_quota_that_other_runs_fill_is_waited_for(tmp_path: Path) -> None:
    one = life(tmp_path, rounds=10**6)
    one.cloud.weather = always("create", QUOTA)
    journal = Journal(MemoryLog(), RUN, one.cloud.now)
    journal.write(ev.RunBegan("job", one.cloud.name, {}, "", 0))
    rules = RunRules(
        lambda: (one.strategy, one.terms), one.tariff, one.limits, shared=lambda _: True
    )
    ended = Runner(journal, environment(one.cloud), one.work, rules, one.retries).run(
        one.world.pass_round, lambda: 0
    )
    assert (ended.outcome, one.cloud.now() - START > HOUR) == ("no capacity", True)


def test_a_quota_refused_after_machines_were_held_is_asked_again(tmp_path: Path) -> None:
    """Machines that are still leaving count against quotas."""
    one = life(tmp_path, {8: (MARKETS[0], False)})
    late = range(START + 4 * MINUTE, START + 12 * MINUTE)
    refused = of_kind(spot=True)
    one.cloud.weather = lambda call: refused(call) if call.at in late else None
    assert one.run().outcome == "done"
    assert not one.state().denied


def silent(one: Life, since: int = START) -> None:
    down = Refusal(Unanswered("no answer from sim-east"))
    one.cloud.weather = lambda call: (
        down if call.name not in ("now", "prices", "offers") and call.at >= since else None
    )


def test_a_region_that_is_down_gets_no_order(tmp_path: Path) -> None:
    one = life(tmp_path)
    silent(one)
    ended_at_once(one, "the job's regions have not answered for 6 minutes: no answer from sim-east")
    assert one.world.calls("create") == []


class Half(FakeProvider):
    """A cloud with one region that never answers a list."""

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        raise PartlyListed(
            Unanswered("no answer from sim-east"), super().list(tags), ("local:sim-east:",)
        )


def test_a_region_that_is_not_listed_gets_no_order(tmp_path: Path) -> None:
    one = life(tmp_path)
    one.world.cloud = Half(Replayed.of(PRICES.values()), START)
    ended_at_once(one, "no answer from sim-east")
    assert one.world.calls("create") == []


def test_a_run_ends_while_its_cloud_does_not_answer(tmp_path: Path) -> None:
    """What it holds ends with its leases, and is waited for."""
    one = life(tmp_path, rounds=10**6)
    silent(one, START + 10 * MINUTE)
    runner = begun(one)

    def pause() -> None:
        one.world.pass_round()
        if one.cloud.now() == START + 20 * MINUTE:
            runner._journal.write(ev.StopRequested("stopped", "on request"))

    assert runner.run(pause, lambda: 0).outcome == "stopped"
    assert not one.world.running
    assert {held.end_reason for held in runner.state.machines.values()} == {"lease ended"}
    assert one.cloud.now() - START < 40 * MINUTE


@pytest.mark.parametrize(
    ("part", "covered"),
    [
        ("", True),
        ("gcp:", True),
        ("gcp:us-east1:", True),
        ("gcp:us-east1-b:", True),
        ("gcp:us-east4-b:", False),
    ],
)
def test_what_a_silent_part_hides(part: str, covered: bool) -> None:
    assert hidden(Market("gcp", "us-east1", "us-east1-b", "n2-standard-4"), (part,)) is covered
