"""Lines that repeat others, equal lines that do not, and the share of the ledger that a bill can
confirm.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.log.ledger.rows import ChargeKind, LedgerRow
from spotctl.show.columns import as_json
from spotctl.show.costs.bills import views
from spotctl.show.costs.bills.read import read_bill
from spotctl.show.costs.bills.reconcile import reconcile
from spotctl.show.costs.bills.views import Agreement, DifferenceKind
from tests.spotctl.show.costs.bills.exports import (
    COST,
    CURRENCY,
    PROVIDERS,
    ROWS,
    TAGS,
    WHOLE,
    Line,
    as_csv,
    lines,
    made_run,
)


def compared(bill: list[Line], path: Path, rows: list[LedgerRow]) -> Agreement:
    path.write_text(as_csv(bill))
    return reconcile(rows, read_bill(path), 0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bill.csv"


def halved(provider: str) -> list[Line]:
    """The first hour or day in two equal lines of half the amount."""
    first, *others = WHOLE[provider]
    half = {**first, COST[provider]: str(float(first[COST[provider]]) / 2)}
    return [half, dict(half), *others]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_equal_lines_that_the_ledger_paid_for_are_no_repetition(provider: str, path: Path) -> None:
    bill = halved(provider)
    if provider == "aws":
        bill[1]["identity/LineItemId"] = "another"
    agreement = compared(bill, path, list(ROWS[provider]))
    assert agreement.differences == ()
    assert agreement.agreed == 1


def test_a_line_is_a_repetition_if_its_id_is_repeated(path: Path) -> None:
    """With IDs, the ledger is not asked: of two equal lines with one ID, one is too many."""
    agreement = compared(halved("aws"), path, list(ROWS["aws"]))
    kinds = [difference.kind for difference in agreement.differences]
    assert kinds == [DifferenceKind.DUPLICATE, DifferenceKind.DIFFERS]
    again = {**WHOLE["aws"][0], "identity/LineItemId": "another"}
    charged_twice = compared([*WHOLE["aws"], again], path, list(ROWS["aws"]))
    assert [difference.kind for difference in charged_twice.differences] == [DifferenceKind.DIFFERS]


@pytest.mark.parametrize(("provider", "column"), [("gcp", "invoice.month"), ("azure", "MeterName")])
def test_without_ids_lines_that_differ_in_any_cell_are_no_repetition(
    provider: str, column: str, path: Path
) -> None:
    first = WHOLE[provider][0]
    again = compared(
        [first, {**first, column: "another"}, *WHOLE[provider][1:]], path, list(ROWS[provider])
    )
    assert [difference.kind for difference in again.differences] == [DifferenceKind.DIFFERS]


# -- the share that could be compared --------------------------------------------------------------


def test_the_headline_says_how_much_of_the_ledger_was_compared(path: Path) -> None:
    whole = compared(WHOLE["aws"], path, list(ROWS["aws"]))
    assert (whole.compared, whole.not_compared) == (1, 0)
    assert (
        views.headline(whole)
        == f"compared all ${whole.ledger / 3.6e12:,.6f} of the ledger: 100% agreed"
    )
    disk = ROWS["aws"][0]._replace(kind=ChargeKind.DISK, amount=whole.ledger)
    untagged = [
        {name: text for name, text in line.items() if name != TAGS["aws"]} for line in WHOLE["aws"]
    ]
    half = compared(untagged, path, [*ROWS["aws"], disk])
    assert half.agrees
    assert views.headline(half).startswith("compared 50% of the ledger ($")
    answer = as_json(views.AGREEMENT, half)
    assert (answer["agreed_pct"], answer["compared_pct"]) == (100, 50)
    assert answer["not_compared_usd"] == answer["untold_usd"] == answer["ledger_usd"]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_time_in_another_currency_is_not_compared(provider: str, path: Path) -> None:
    bill = [dict(line) for line in WHOLE[provider]]
    bill[1].update({CURRENCY[provider]: "EUR", COST[provider]: "7.5"})
    agreement = compared(bill, path, list(ROWS[provider]))
    foreign = float(WHOLE[provider][1][COST[provider]])
    assert agreement.foreign / 3.6e12 == pytest.approx(foreign, rel=1e-6)
    assert agreement.ledger + agreement.foreign == sum(row.amount for row in ROWS[provider])
    assert agreement.ledger == pytest.approx(agreement.bill, rel=1e-6)
    assert as_json(views.AGREEMENT, agreement)["compared_pct"] < 100
    assert "1 line in another currency without a rate" in views.headline(agreement)


def test_machines_that_still_run_are_not_compared_and_other_periods_are_not_in_the_share(
    path: Path,
) -> None:
    rows = list(ROWS["aws"])
    running = rows[0]._replace(settled=False, amount=sum(row.amount for row in rows))
    half = compared(WHOLE["aws"], path, [*rows, running])
    assert half.compared == 0.5
    later = rows[0]._replace(
        begin=rows[0].begin + 90 * 86_400_000_000, end=rows[0].end + 90 * 86_400_000_000
    )
    outside = compared(WHOLE["aws"], path, [*rows, later])
    assert (outside.compared, outside.outside_amount) == (1, later.amount)


def test_nothing_to_compare_is_no_agreement(path: Path) -> None:
    stranger = {**WHOLE["aws"][0], TAGS["aws"]: ""}
    other_run = made_run("gcp").rows()
    nothing = compared([stranger], path, list(other_run))
    assert (nothing.agreed, nothing.compared) == (None, None)
    assert (
        views.headline(nothing)
        == "the ledger has no costs in this bill's period: nothing to compare"
    )
    assert as_json(views.AGREEMENT, nothing)["agreed_pct"] is None
    assert lines("gcp", other_run)
