"""Ledgers that are read from a log."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pricing_data.library import Library, Selection
from pricing_data.store import PriceStore
from spotctl.home.config import Settings
from spotctl.log.ledger.rows import Use
from spotctl.log.ledger_reader import read
from tests.spotctl.command_line import spotctl
from tests.spotctl.log.ledger import seconds
from tests.spotctl.log.ledger.histories import JOB, nights
from tests.spotctl.log.ledger.recount import differences, recounted
from tests.spotctl.log.ledger.test_ledger import by_machine


def test_the_log_of_a_runner_is_counted_from_its_file(tmp_path: Path) -> None:
    """Two nights on the bundled market: the raw rows of the file, the raw history of prices, second
    by second.
    """
    runs = nights(tmp_path, 2, seed=2, job=JOB.replace("c4.2xlarge, c4.xlarge", "c4.2xlarge"))
    library = Library(PriceStore(tmp_path / "prices"))
    steps = {
        str(one.market): list(zip(one.times.tolist(), one.prices.tolist(), strict=True))
        for one in library.table(library.require(Selection(clouds=("local",))))
    }
    ledgers = {run.events[0].run: run.ledger for run in read(Settings(home=tmp_path))}
    assert list(ledgers) == runs
    with closing(sqlite3.connect(tmp_path / "log.sqlite")) as file:
        for run, ledger in ledgers.items():
            rows = file.execute(
                "SELECT at_us, kind, body FROM events WHERE run = ? ORDER BY id", (run,)
            ).fetchall()
            sums = seconds.counted(rows, "hourly-refund", steps)
            assert by_machine(ledger, "amount") == {
                key: amount for key, amount in sums.billed.items() if amount
            }
            assert by_machine(ledger, "on_demand") == {
                key: amount for key, amount in sums.listed.items() if amount
            }
            ended = json.loads(rows[-1][2])
            assert ended["facts"]["spent"] == ledger.amount == sum(sums.billed.values())
    found = recounted(tmp_path / "log.sqlite")
    answer = spotctl("--home", tmp_path, "report", "cost", "--by", "run", "--json").json
    assert differences(found, answer) == []
    assert all(one.on_demand for one in found.values())
    off = {
        runs[0]: replace(found[runs[0]], bill=found[runs[0]].bill + 1),
        runs[1]: replace(found[runs[1]], low=10**12),
    }
    assert sorted(line.split()[1] for line in differences(off, answer)) == ["on", "paid"]
    uses = {row.use for ledger in ledgers.values() for row in ledger.rows}
    assert {Use.STARTING, Use.LOADING, Use.WORKING, Use.IDLE} <= uses
