"""A reconciliation as JSON and as lines for a person."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pricing_data.units import format_time
from spotctl.ledger import micro_dollars
from spotctl.reports.bills.lines import DOLLARS
from spotctl.reports.bills.reconcile import Agreement, Difference, Kind
from spotctl.reports.cost import usd

MOST_NAMED = 200
"""So many differences are named on the terminal; JSON has all."""


def as_json(agreement: Agreement) -> dict[str, Any]:
    """What `report reconcile --json` prints."""
    return {
        "provider": agreement.provider,
        "agrees": agreement.agrees,
        "ledger_usd": usd(agreement.ledger),
        "bill_usd": usd(agreement.bill),
        "machines": agreement.machines,
        "lines": agreement.lines,
        "differences": [_difference(one) for one in agreement.differences],
        "other_lines": agreement.other_lines,
        "other_usd": usd(agreement.others),
        "unsettled_rows": agreement.unsettled,
        "rows_outside_period": agreement.outside,
        "untold_usd": usd(agreement.untold),
    }


def _difference(one: Difference) -> dict[str, Any]:
    return {
        "kind": one.kind.value,
        "resource": one.resource,
        "from": format_time(one.begin),
        "to": format_time(one.end),
        "ledger_usd": None if one.ledger is None else usd(one.ledger),
        "bill_amount": None if one.bill is None else usd(one.bill),
        "currency": one.currency,
        "lines": list(one.where),
    }


def as_lines(agreement: Agreement, path: str) -> Iterator[str]:
    """The differences, one a line, and what was compared."""
    for one in agreement.differences[:MOST_NAMED]:
        yield _line(one)
    if (left := len(agreement.differences) - MOST_NAMED) > 0:
        yield f"and {left:,} more (--json names all)"
    if agreement.differences:
        yield ""
    yield f"ledger {_dollars(agreement.ledger)}, {path} {_dollars(agreement.bill)}: {_verdict(agreement)}"
    yield f"{agreement.machines:,} machines and {agreement.lines:,} lines of {agreement.provider} were compared"
    if agreement.other_lines:
        sum_ = _dollars(agreement.others)
        yield f"{agreement.other_lines:,} lines ({sum_}) are of what was not rented here, and were not compared"
    if agreement.untold:
        yield (
            f"{_dollars(agreement.untold)} of the ledger is for disks, addresses and traffic, and was not compared: the"
            " export does not tell the tag spotctl-run"
        )
    if agreement.unsettled:
        yield f"{agreement.unsettled:,} rows of the ledger are of machines that still run, and were not compared"
    if agreement.outside:
        yield f"{agreement.outside:,} rows of the ledger lie outside of the bill's period, and were not compared"


def _line(one: Difference) -> str:
    text = f"{one.kind.value:<21} {one.resource}  {format_time(one.begin)} to {format_time(one.end)}  {_amounts(one)}"
    return f"{text}  ({_places(one.where)})" if one.where else text


def _amounts(one: Difference) -> str:
    if one.kind is Kind.DIFFERS and one.ledger is not None and one.bill is not None:
        return f"ledger {_dollars(one.ledger)}, bill {_dollars(one.bill)}, {_dollars(one.bill - one.ledger)} apart"
    amount = one.ledger if one.bill is None else one.bill
    assert amount is not None, "a difference has an amount"
    return _dollars(amount) if one.currency == DOLLARS else f"{usd(amount):.6f} {one.currency}"


def _places(where: tuple[str, ...]) -> str:
    shown = ", ".join(where[:4])
    return shown if len(where) <= 4 else f"{shown} and {len(where) - 4} more"


def _dollars(amount: int) -> str:
    value = micro_dollars(amount) / 1_000_000
    return f"-${-value:,.6f}" if value < 0 else f"${value:,.6f}"


def _verdict(agreement: Agreement) -> str:
    if agreement.agrees:
        return "they agree"
    count = len(agreement.differences)
    return f"they differ in {count:,} {'place' if count == 1 else 'places'}"
