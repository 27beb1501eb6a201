"""Reserved machines in all that people and programs read of a run: they are named, and are not
called on demand.
"""

from __future__ import annotations

import csv
from typing import Any

import pytest

from pricing_data.market import Market
from pricing_data.units import HOUR
from spotctl.log import events as ev
from spotctl.log.folding import fold
from spotctl.log.ledger.rows import CostSoFar
from spotctl.log.state import LogRow
from spotctl.show.costs import focus
from spotctl.show.costs.answers import as_json
from spotctl.show.costs.page import html
from spotctl.show.costs.periods import By
from spotctl.show.metrics import metrics_text
from spotctl.show.phrases import terms_text
from spotctl.show.runs import picture
from spotctl.show.runs.lines import happened
from spotctl.show.runs.reading import WatchedRun
from spotctl.show.runs.run_view import Money, run_view
from spotctl.show.runs.status import status_answer
from spotctl.show.runs.timeline import Timeline, follow
from spotctl.show.ui import pages
from tests.spotctl.show.costs.made import AWS, NIGHT, RESERVED, partly_reserved, report_of
from tests.spotctl.show.runs.made_up_run import text

PRICE, LISTED = 50_000_000, 340_000_000
LINE = "rented 2 x c6i.2xlarge (us-east-1b, reservation cr-0abc) at $0.05/h"
LOG = partly_reserved(PRICE).log()
RUNNING = [row for row in LOG if row.at < NIGHT + HOUR]
VIEW = run_view(fold(RUNNING), NIGHT + HOUR // 2, attended=True, money=Money(CostSoFar(0, 0)))


def groups(price: int, by: By, *, is_listed: bool = True) -> dict[str, dict[str, Any]]:
    whole = as_json(report_of([partly_reserved(price, is_listed=is_listed)], (by,)))
    return {group[by.value]: group for group in whole["groups"]}


def test_the_lines_of_a_launch_and_of_a_watched_run_name_the_reservation_and_its_price() -> None:
    assert terms_text(RESERVED, None, PRICE) == " at $0.05/h"
    states = [fold(LOG[:1]), fold(RUNNING)]
    assert LINE in happened(*states)
    assert LINE in [str(event) for event in follow(Timeline(), LOG).events]


def refusing(market: Market, bid: int | None, kind: str = "NotFound") -> list[LogRow]:
    """The log of a run in which a market refuses two orders for the same reason."""
    why = f"{market}: The capacity reservation does not exist."
    orders = [ev.RentIntended(i, market, 2, bid, PRICE, 2.0, False, NIGHT + HOUR) for i in (1, 2)]
    events = [
        event for order in orders for event in (order, ev.RentRefused(order.intent, kind, why))
    ]
    return [
        LOG[0],
        *(LogRow(i, LOG[0].run, NIGHT, event) for i, event in enumerate(events, LOG[0].id + 1)),
    ]


def test_a_launch_says_once_why_a_reservation_was_refused() -> None:
    rows = refusing(RESERVED, None)
    assert happened(fold(rows[:2]), fold(rows[:3])) == [
        f"refused: {RESERVED}: The capacity reservation does not exist."
    ]
    assert happened(fold(rows[:3]), fold(rows)) == []
    assert happened(fold(LOG[:1]), fold(refusing(AWS[0], PRICE, "NoCapacity"))) == []


def test_status_and_metrics_have_a_kind_of_their_own() -> None:
    (job,) = status_answer([VIEW])["jobs"]
    assert sorted(machine["kind"] for machine in job["machines"]) == [
        "reserved",
        "reserved",
        "spot",
    ]
    assert f'market="{RESERVED}",pricing="reserved"}} 2' in metrics_text([VIEW], 0)


def test_a_watched_run_shows_the_price_of_the_user_and_the_list_price() -> None:
    run = WatchedRun(VIEW)
    (line,) = [line for line in VIEW.markets if line.market == RESERVED]
    assert (run.price_of(line), line.bid, line.on_demand) == (PRICE, None, LISTED)
    (shown,) = [
        line
        for line in text(picture.whole(run, 160), 160)
        if "cr-0abc" in line and "$0.3400" in line
    ]
    assert "reserved" in shown
    assert "$0.0500" in shown
    assert "<td>reserved</td>" in str(pages._price_chart(run))


@pytest.mark.parametrize(("price", "is_listed"), [(PRICE, True), (0, True), (0, False)])
def test_a_report_counts_the_price_of_the_user(price: int, is_listed: bool) -> None:
    kinds = groups(price, By.KIND, is_listed=is_listed)
    assert set(kinds) == {"reserved machines", "spot machines"}
    assert kinds["reserved machines"]["total_usd"] == pytest.approx(2 * price / 1e9)
    assert kinds["spot machines"]["total_usd"] == pytest.approx(0.1)


def test_the_same_work_on_demand_is_shared_by_list_prices_and_not_by_the_prices_of_users() -> None:
    for price in (PRICE, 0):
        shares = groups(price, By.MARKET)
        on_reserved, on_spot = (
            shares[str(market)]["on_demand_usd"] for market in (RESERVED, AWS[0])
        )
        assert on_reserved == pytest.approx(2 * on_spot)
        assert on_spot > 0


def test_the_page_counts_reserved_machines_apart() -> None:
    whole = report_of([partly_reserved(PRICE)])
    assert ">reserved</th>" in html(whole)
    assert max(mix.reserved for mix in whole.runs[0].mixes) == 2
    assert max(mix.on_demand for mix in whole.runs[0].mixes) == 0


def test_focus_names_the_reservation_and_the_list_price() -> None:
    for price in (PRICE, 0):
        lines = csv.DictReader(focus.csv_lines(report_of([partly_reserved(price)]), focus.COLUMNS))
        own = [line for line in lines if line["CapacityReservationId"]]
        assert {line["CapacityReservationId"] for line in own} == {"cr-0abc"}
        assert {line["CapacityReservationStatus"] for line in own} == {"Used"}
        assert all(" reserved machine" in f" {line['ChargeDescription']}" for line in own)
        assert sum(float(line["ListCost"]) for line in own) == pytest.approx(2 * LISTED / 1e9)
        assert sum(float(line["BilledCost"]) for line in own) == pytest.approx(2 * price / 1e9)


def test_the_first_step_of_a_saving_counts_reserved_machines_too() -> None:
    """Programs know it by its name."""
    steps = as_json(report_of([partly_reserved(0)]))["saving"]["steps"]
    assert steps[0]["name"] == "spot discount"
    assert steps[0]["usd"] > 0
