"""What a repair of the log drops is marked in it, and every figure that rests on it says "at
least".
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pricing_data.units import HOUR, MINUTE
from spotctl.log import events as ev
from spotctl.log.state import LogRow
from spotctl.log.store import EventLog
from spotctl.run.remote_runner.homes import add_missing
from tests.samples import LONG_RUN
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.log.old_form import to_old_form
from tests.spotctl.show.costs.made import AWS, LOCAL, NIGHT, MadeRun, write_log

TABLE_LEAF = 0x0D
"""The first byte of a page with rows."""
DOLLARS = 3600 * 10**9
RUN, OTHER = "train-00000a", "tune-00000b"


def ended(run: str, job: str, *, provider: str = "aws") -> MadeRun:
    """A run of two machines for four hours at 30 cents: $2.40."""
    made = MadeRun(run, job, NIGHT, provider=provider)
    market = AWS[0] if provider == "aws" else LOCAL
    resources = {"clouds": [provider], "types": [market.instance_type]}
    made.begin(kind="command", run="true", resources=resources)
    made.price(market, [NIGHT, NIGHT + 9 * HOUR], [300_000_000] * 2)
    made.end_machines(made.rent(market, 2, NIGHT), NIGHT + 4 * HOUR, "returned")
    made.finish(NIGHT + 4 * HOUR)
    at, end = made.events[-1]
    assert isinstance(end, ev.RunEnded)
    made.events[-1] = at, ev.RunEnded("done", "", end.wall_us, {"spent": 24 * DOLLARS // 10})
    return made


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of two jobs with the same run each."""
    home = tmp_path / "home"
    home.mkdir()
    write_log([ended(RUN, "train"), ended(OTHER, "tune")], home)
    return home / "log.sqlite"


def changed(log: Path, statement: str) -> None:
    with closing(sqlite3.connect(log, isolation_level=None)) as db:
        db.execute("DROP TRIGGER IF EXISTS no_update")
        db.execute("DROP TRIGGER IF EXISTS no_delete")
        db.execute(statement)


def damaged(log: Path, kind: str, run: str = RUN) -> None:
    """The first row of this kind is no JSON any more."""
    changed(
        log,
        f"UPDATE events SET body = 'x' WHERE id = (SELECT min(id) FROM events WHERE run = '{run}' "
        f"AND kind = '{kind}')",
    )


def repaired() -> None:
    """Repairs the log; afterwards it is sound, and a second repair has nothing to do."""
    assert spotctl("log", "repair").code == 0
    checked = spotctl("log", "check", "--json")
    assert (checked.code, checked.json["damage"]) == (0, [])
    assert checked.json["dropped"]
    again = spotctl("log", "repair", "--json")
    assert (again.code, again.json) == (0, checked.json)


def job_of(answer: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = [job for job in answer["jobs"] if job["name"] == name]
    return found


def group_of(report: dict[str, Any], job: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = [group for group in report["groups"] if group["job"] == job]
    return found


KINDS = (
    "RunBegan",
    "RentIntended",
    "Rented",
    "MachineRan",
    "MachineEnded",
    "Priced",
    "RunEnded",
    "Progressed",
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_lost_a_row_says_at_least_everywhere_and_other_runs_are_as_before(
    log: Path, kind: str
) -> None:
    before = spotctl("report", "cost", "--json").json
    damaged(log, kind)
    repaired()
    report, status = spotctl("report", "cost", "--json").json, spotctl("status", "--json").json
    lossy, run = group_of(report, "train"), job_of(status, "train")
    assert lossy["rows_lost"] == run["rows_lost"] >= 1
    assert (lossy["total_high_usd"], run["spent_high_usd"], report["total_high_usd"]) == (
        None,
        None,
        None,
    )
    assert (lossy["total_usd"], lossy["total_low_usd"]) == (run["spent_usd"], run["spent_low_usd"])
    assert lossy["total_low_usd"] <= 2.4
    if kind != "RunEnded":
        assert lossy["total_usd"] == 2.4, "the end of the run says what it has cost"
    assert lossy["saved_pct"] is lossy["usd_per_success"] is None
    assert group_of(report, "tune") == group_of(before, "tune")
    assert job_of(status, "tune")["spent_high_usd"] == 2.4


def test_texts_say_at_least(log: Path) -> None:
    damaged(log, "Rented")
    repaired()
    assert "train: at least $2.40 paid for 1 run" in spotctl("report", "cost", "--job", "train").out
    whole = spotctl("report", "cost")
    assert "2 jobs: at least $4.80 paid" in whole.out
    lost = f"the event log has lost 3 rows of {RUN} (spotctl log check lists them)"
    assert lost in " ".join(whole.out.split())
    markdown = spotctl("report", "cost", "--format", "md").out
    assert "at least $4.80 paid" in markdown
    assert "| train | at least $2.40 |" in markdown
    assert "| tune | $2.40 |" in markdown
    page = spotctl("report", "cost", "--format", "html").out
    assert "at least $4.80 paid" in page
    first, train, tune = spotctl("report", "cost", "--format", "csv").out.splitlines()
    columns = dict(zip(first.split(","), train.split(","), strict=True))
    assert (columns["total_low_usd"], columns["total_high_usd"], columns["rows_lost"]) == (
        "2.400000000",
        "",
        "3",
    )
    assert (
        dict(zip(first.split(","), tune.split(","), strict=True))["total_high_usd"] == "2.400000000"
    )
    assert "at least $2.40" in " ".join(spotctl("status").out.split())
    assert "spent at least $2.40" in spotctl("status", "train", "--watch").out
    assert "3 rows of run train-00000a (Rented, MachineEnded)" in spotctl("log", "check").out


def test_a_run_without_its_end_counts_what_is_known(log: Path) -> None:
    """One of two machines has no end: only the time counts in which it was seen."""
    damaged(log, "MachineEnded")
    damaged(log, "RunEnded")
    repaired()
    lossy = group_of(spotctl("report", "cost", "--json").json, "train")
    assert 1.2 <= lossy["total_low_usd"] < 1.3
    assert (
        job_of(spotctl("status", "--json").json, "train")["spent_low_usd"] == lossy["total_low_usd"]
    )


def test_a_run_of_which_nothing_is_left_is_named_by_the_index(log: Path) -> None:
    changed(log, f"UPDATE events SET body = 'x' WHERE run = '{RUN}'")
    repaired()
    assert job_of(spotctl("status", "--json").json, "train")["rows_lost"] == 10
    assert group_of(spotctl("report", "cost", "--json").json, "train")["total_high_usd"] is None


def test_a_page_that_cannot_be_read_is_named_by_run_in_the_index(
    log: Path, approved: Approved
) -> None:
    """The page in the middle of the table: its rows are those of both runs."""
    with EventLog(log) as opened:
        for number in range(200):
            opened.append(
                RUN if number % 2 else OTHER, NIGHT + 5 * HOUR, ev.Decided((), f"{number:0100d}")
            )
    page, content = 4096, bytearray(log.read_bytes())
    leaves = [at for at in range(page, len(content), page) if content[at] == TABLE_LEAF]
    middle = leaves[len(leaves) // 2]
    content[middle : middle + page] = bytes(page)
    log.write_bytes(content)
    approved(spotctl("report", "cost"))
    repaired()
    marks = bodies(log, "RowsLost")
    assert len(marks) == 2
    assert all(mark["rows"] > 5 for mark in marks)
    report = spotctl("report", "cost", "--json").json
    assert [group["total_usd"] for group in report["groups"]] == [2.4, 2.4]
    assert sum(mark["rows"] for mark in marks) == report["rows_lost"]


@LONG_RUN
def test_a_copy_of_a_run_goes_on_where_the_log_ended_before_its_repair(log: Path) -> None:
    with EventLog(log) as opened:
        before = opened.of_run(RUN)[:-1]
    changed(log, f"DELETE FROM events WHERE id = {before[-1].id + 1}")
    damaged(log, "Rented")
    repaired()
    with EventLog(log) as opened:
        whole = [*before, LogRow(0, RUN, before[-1].at, ev.Decided((), "the end was not lost"))]
        assert add_missing(opened, RUN, whole) == 0
        assert add_missing(opened, RUN, [*whole, whole[-1]]) == 1


def test_rows_of_unknown_runs_are_missing_in_every_figure_of_their_time(log: Path) -> None:
    """In logs of earlier versions, rows have no numbers, and nothing says which run a lost row
    belonged to.
    """
    to_old_form(log)
    changed(log, f"DELETE FROM events WHERE run = '{OTHER}' OR kind = 'RunEnded'")
    repaired()
    report = spotctl("report", "cost", "--json").json
    assert (report["total_high_usd"], report["month"]["paid_high_usd"]) == (None, None)
    status = spotctl("status", "--json").json
    assert status["rows_lost"] > 0
    assert job_of(status, "train")["spent_high_usd"] is None
    assert "of an unknown run" in spotctl("status").err


def test_an_older_run_that_lost_its_end_has_ended(log: Path) -> None:
    with EventLog(log) as opened:
        for row in ended("train-00000c", "train").log():
            opened.append(row.run, row.at, row.event)
    damaged(log, "RunEnded")
    repaired()
    report = spotctl("report", "cost", "--by", "run", "--json").json
    assert {group["run"]: group["running"] for group in report["groups"]}[RUN] == 0


def test_a_missing_price_concerns_one_run(tmp_path: Path) -> None:
    """The market's prices are nowhere: not in the log, and not in the store."""
    home = tmp_path / "home"
    home.mkdir()
    poor = ended(RUN, "train")
    poor.events = [
        (at, ev.RunEnded("done", "", at)) if isinstance(event, ev.RunEnded) else (at, event)
        for at, event in poor.events
        if not isinstance(event, ev.Priced)
    ]
    write_log([poor, ended(OTHER, "tune")], home)
    report = spotctl("report", "cost", "--json")
    assert report.code == 0, report.err
    found = group_of(report.json, "train")
    assert (found["total_usd"], found["total_low_usd"], found["total_high_usd"]) == (0, 0, None)
    assert group_of(report.json, "tune")["total_high_usd"] == 2.4
    status = spotctl("status", "--json").json
    assert (job_of(status, "train")["spent_usd"], job_of(status, "train")["spent_high_usd"]) == (
        0,
        None,
    )
    assert "at least: not all prices of train-00000a are known" in " ".join(
        spotctl("report", "cost").out.split()
    )


def test_the_beginning_says_what_the_other_rows_show(log: Path) -> None:
    damaged(log, "RunBegan")
    repaired()
    with EventLog(log) as opened:
        began = next(row for row in opened.beginnings() if row.run == RUN)
    assert isinstance(began.event, ev.RunBegan)
    assert (began.event.job, began.event.provider, began.event.wall_us) == ("train", "aws", NIGHT)


def bodies(log: Path, kind: str) -> Sequence[dict[str, Any]]:
    with closing(sqlite3.connect(log)) as db:
        return [
            json.loads(body)
            for (body,) in db.execute("SELECT body FROM events WHERE kind = ?", (kind,))
        ]


def test_the_mark_names_rows_kinds_and_time(log: Path) -> None:
    damaged(log, "Progressed")
    repaired()
    (mark,) = bodies(log, "RowsLost")
    assert (mark["rows"], mark["kinds"]) == (1, ["Progressed"])
    assert mark["first"] == mark["last"]
    assert (mark["since"], mark["until"]) == (NIGHT + 2 * MINUTE, NIGHT + 4 * HOUR)


def test_a_repair_keeps_what_is_known_of_sound_runs(log: Path) -> None:
    before = group_of(spotctl("report", "cost", "--json").json, "tune")
    assert spotctl("status").code == 0
    damaged(log, "MachineRan")
    repaired()
    with EventLog(log) as opened:
        kept = [
            opened.final(table, opened.ends()).keys() for table in ("final_costs", "final_views")
        ]
    assert kept == [{OTHER}, {OTHER}]
    assert group_of(spotctl("report", "cost", "--json").json, "tune") == before


def test_traffic_of_a_machine_whose_row_is_lost_fails_no_report(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    run = ended(RUN, "train")
    (machine, _), *_ = (event.machines for _, event in run.events if isinstance(event, ev.Rented))
    run.events.insert(-1, (NIGHT + HOUR, ev.Sent(machine.id, NIGHT + HOUR, 10**9, 10**8)))
    write_log([run, ended(OTHER, "tune")], home)
    damaged(home / "log.sqlite", "Rented")
    repaired()
    answer = spotctl("report", "cost", "--json").json
    assert group_of(answer, "train")["total_high_usd"] is None
    assert group_of(answer, "tune")["total_usd"] == 2.4
    assert spotctl("status").code == 0


def test_an_amount_that_was_changed_is_named_and_not_counted(log: Path) -> None:
    """Its row is as well-formed as before; only the checksum tells."""
    changed(
        log, f"UPDATE events SET body = replace(body, '300000000', '100000000') WHERE run = '{RUN}'"
    )
    checked = spotctl("log", "check")
    assert checked.code == 1
    assert f"(run {RUN}): the row says something else than its checksum" in checked.out
    report = ("report", "cost", "--by", "run", "--json")
    before = spotctl(*report).json["groups"]
    repaired()
    assert spotctl(*report).json["groups"] == before
    lossy, sound = sorted(before, key=lambda group: str(group["run"]))
    assert (lossy["run"], lossy["rows_lost"] > 0, sound["rows_lost"]) == (RUN, True, 0)
    assert sound["total_usd"] == 2.4
