"""Where the money of a report went."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pricing_data.units import HOUR, NANO_SECONDS_PER_DOLLAR
from spotctl.log import events as ev
from spotctl.log.ledger.rows import ChargeKind, LedgerRow, Use, usd
from spotctl.show.costs.money import cumulative_of, held_prices, markets_of, minimum_bids, parts_of
from tests.spotctl.show.costs.made import AWS, NIGHT, MadeRun, month, report_of, started_hour


def held(machine: str, begin: int, end: int, price: int) -> LedgerRow:
    amount = (end - begin) // 1_000_000 * price
    listed = (end - begin) // 1_000_000 * 400
    return LedgerRow(
        "a",
        "a",
        machine,
        AWS[0],
        False,
        True,
        begin,
        end,
        ChargeKind.COMPUTE,
        Use.WORKING,
        price,
        amount,
        listed,
        True,
        400,
    )


def test_prices_are_the_mean_over_held_machines() -> None:
    """One machine at 25%, joined by one at 75%, and after a gap one at 50%."""
    rows = [
        held("i-1", NIGHT, NIGHT + 2 * HOUR, 100),
        held("i-2", NIGHT + HOUR, NIGHT + 2 * HOUR, 300),
        held("i-3", NIGHT + 3 * HOUR, NIGHT + 4 * HOUR, 200),
    ]
    made = MadeRun("a", "a", NIGHT)
    made.begin()
    report = report_of([made])
    markets = markets_of(replace(report, rows=tuple(rows)))
    (one,) = held_prices(rows, markets)
    assert [((begin - NIGHT) // HOUR, (end - NIGHT) // HOUR) for begin, end, _ in one.data] == [
        (0, 1),
        (1, 2),
        (3, 4),
    ]
    assert [percent for _, _, percent in one.data] == pytest.approx([25.0, 50.0, 50.0])


def test_a_minimum_bid_is_drawn_from_one_look_at_hosts_to_the_next() -> None:
    made = MadeRun("a", "a", NIGHT)
    made.begin()
    made.rent(AWS[0], 1, NIGHT, spot=False)
    looks = ((1, AWS[0], 136), (2, AWS[1], 999), (2, AWS[0], 170))
    for hour, market, least in looks:
        made.add(NIGHT + hour * HOUR, ev.HostsListed(market, 3, least * 1_000_000))
    made.add(NIGHT + 2 * HOUR, ev.HostsListed(AWS[0], 0, 0))
    made.finish(NIGHT + 4 * HOUR)
    report = report_of([made])
    (line,) = minimum_bids(report.runs[0], markets_of(report))
    assert [(begin - NIGHT, end - NIGHT) for begin, end, _ in line.data] == [
        (HOUR, 2 * HOUR),
        (2 * HOUR, 4 * HOUR),
    ]
    assert [percent for _, _, percent in line.data] == pytest.approx([40.0, 50.0])


@pytest.mark.parametrize("started", [False, True])
def test_cumulative_cost_ends_at_the_total(started: bool) -> None:
    """Including a charge for time after the end of a machine."""
    made = started_hour() if started else month()[4]
    report = report_of([made])
    markets = markets_of(report)
    ends = [layer.data[-1][1] for layer in cumulative_of(report.rows, markets)]
    assert sum(ends) == pytest.approx(report.whole.total / NANO_SECONDS_PER_DOLLAR, rel=1e-9)
    assert sum(one.paid for one in markets) == report.whole.total
    assert sum(one.evictions for one in markets) == report.whole.evictions


def test_parts_add_up_to_the_total() -> None:
    report = report_of(month()[:3])
    assert sum(part.data for part in parts_of(report.whole)) == pytest.approx(
        usd(report.whole.total), abs=5e-6
    )
