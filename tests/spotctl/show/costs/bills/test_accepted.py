"""`reconcile --accept`: the ledger takes over the bill's amounts as corrections."""

from __future__ import annotations

from pathlib import Path

from spotctl.home.config import Settings
from spotctl.log.ledger.rows import ChargeKind
from spotctl.log.ledger_reader import read
from tests.spotctl.command_line import spotctl
from tests.spotctl.show.costs.bills.exports import as_csv, lines, made_run
from tests.spotctl.show.costs.made import write_log


def test_a_difference_is_corrected_once(tmp_path: Path) -> None:
    home, path = tmp_path / "home", tmp_path / "bill.csv"
    home.mkdir()
    write_log([made_run("aws")], home)
    (before,) = read(Settings(home=home))
    bill = lines("aws", before.ledger.rows)
    bill[1]["lineItem/UnblendedCost"] = str(float(bill[1]["lineItem/UnblendedCost"]) + 0.25)
    path.write_text(as_csv(bill[:-1]))

    words = ("report", "reconcile", "--bill", path)
    first = spotctl(*words, "--accept")
    assert first.code == 1
    assert "corrected 1 machine by" in first.err
    (after,) = read(Settings(home=home))
    *same, last = after.ledger.rows
    assert tuple(same) == before.ledger.rows
    assert last.kind is ChargeKind.CORRECTION
    assert abs(last.amount / 3.6e12 - 0.25) < 1e-4
    # The missing line is still reported, and nothing is corrected twice.
    again = spotctl(*words, "--accept")
    assert again.code == 1
    assert "corrected 0 machines" in again.err
    path.write_text(as_csv(bill))
    assert spotctl(*words).code == 0
