"""The event log: rows stay, and other processes can read."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import given, strategies as st

from spotctl.log import events as ev
from spotctl.log.event_json import from_json, log_rows, to_json
from spotctl.log.events import KINDS, Event
from spotctl.log.outcomes import BrokenLog
from spotctl.log.store import EventLog
from tests.spotctl.run.worlds import MARKETS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.sqlite"


st.register_type_strategy(ev.JsonFloat, st.floats(allow_nan=False))
st.register_type_strategy(ev.MarketText, st.sampled_from(MARKETS))

EVENTS = st.one_of(
    *(
        st.from_type(kind)
        for kind in KINDS.values()
        if kind
        not in (
            ev.Checkpointed,
            ev.RunBegan,
            ev.RunEnded,
            ev.StopRequested,
            ev.RentIntended,
            ev.Progressed,
            ev.Planned,
            ev.Priced,
        )
    ),
    st.builds(ev.Planned, *(st.floats(0) for _ in range(5)), st.booleans()),
    st.builds(
        ev.Priced,
        st.sampled_from(MARKETS),
        st.text(),
        *(st.lists(st.integers()).map(tuple) for _ in range(2)),
    ),
    st.builds(ev.StopRequested, st.text(), st.text(), st.just({"model": "m", "clocks": 3})),
    st.builds(
        ev.RentIntended,
        st.integers(1),
        st.sampled_from(MARKETS),
        st.integers(1),
        st.none() | st.integers(1),
        st.integers(1),
        st.floats(0.1, allow_nan=False),
        st.booleans(),
        st.integers(0),
    ),
    st.builds(ev.Checkpointed, *(st.integers(0) for _ in range(4)), st.floats(0), st.floats(0)),
    st.builds(
        ev.Progressed,
        st.integers(0),
        st.none() | st.floats(-1e9, 1e9),
        st.integers(1, 3),
        ready=st.lists(st.builds(ev.Moment, st.text(), st.integers())).map(tuple),
        redone=st.lists(st.builds(ev.Stretch, st.integers(), st.integers())).map(tuple),
    ),
    st.builds(
        ev.RunBegan,
        st.text(),
        st.text(),
        st.just({"name": "x", "n": [1, None]}),
        st.text(),
        st.integers(0),
    ),
)


@given(EVENTS)
def test_events_survive_json(event: Event) -> None:
    assert from_json(type(event).__name__, to_json(event)) == event


def test_an_event_of_a_later_version_is_an_error() -> None:
    with pytest.raises(BrokenLog, match="contains an unknown event 'Teleported'"):
        from_json("Teleported", "{}")
    with pytest.raises(BrokenLog, match="damaged MachineRan"):
        from_json("MachineRan", "{}")


@given(st.lists(EVENTS, max_size=6))
def test_events_that_are_read_together_are_in_order(events: list[Event]) -> None:
    kinds = [type(event).__name__ for event in events]
    assert read_together(kinds, list(map(to_json, events))) == events


def test_a_damaged_body_is_found_among_others() -> None:
    good = '{"id":"m"}'
    for damaged in (f"{good},{good}", "{}", ""):
        with pytest.raises(BrokenLog, match="damaged MachineRan"):
            read_together(["MachineRan"] * 3, [good, damaged, good])
    old = '{"what":"rent","committed":1,"limit":2}'
    assert read_together(["Refrained"], [old]) == [from_json("Refrained", old)]


def read_together(kinds: list[str], bodies: list[str]) -> list[Event]:
    stored = [
        (number, "r", 0, kind, body, None, None, None)
        for number, (kind, body) in enumerate(zip(kinds, bodies, strict=True))
    ]
    return [row.event for row in log_rows(stored)]


def test_rows_are_in_order_and_by_run(path: Path) -> None:
    with EventLog(path) as log, EventLog(path) as reader:
        for at, run in enumerate(("a", "b", "a")):
            log.append(run, at, ev.MachineRan(f"m{at}"))
        rows = reader.of_run("a")
        assert [(row.at, row.event) for row in rows] == [
            (0, ev.MachineRan("m0")),
            (2, ev.MachineRan("m2")),
        ]
        assert reader.of_run("a", rows[0].id) == rows[1:]


def test_a_run_without_its_beginning_is_a_damaged_log(path: Path) -> None:
    with EventLog(path) as log:
        log.append("c", 9, ev.RunBegan("job", "local", {"a": 1}, "/f", 3))
        assert [row.run for row in log.beginnings()] == ["c"]
        log.append("d", 9, ev.MachineRan("m"))
        with pytest.raises(BrokenLog, match="the beginning of run d is lost"):
            log.beginnings()


def test_several_may_open_a_new_log_at_the_same_moment(tmp_path: Path) -> None:
    at_once = Barrier(4)

    def open_log(path: Path) -> None:
        at_once.wait()
        EventLog(path).close()

    with ThreadPoolExecutor(4) as threads:
        for number in range(40):
            list(threads.map(open_log, [tmp_path / f"{number}.sqlite"] * 4))


@pytest.mark.parametrize("statement", ["UPDATE events SET at_us = 1", "DELETE FROM events"])
def test_nothing_is_changed_or_removed(path: Path, statement: str) -> None:
    with EventLog(path) as log:
        log.append("a", 0, ev.MachineRan("m"))
    with sqlite3.connect(path) as other, pytest.raises(sqlite3.IntegrityError, match="never"):
        other.execute(statement)
    other.close()


def test_a_log_of_an_earlier_version_gets_checksums_for_new_rows(path: Path) -> None:
    with EventLog(path) as log:
        log.append("a", 0, ev.RunBegan("job", "local", {}, "/f", 3))
    with closing(sqlite3.connect(path)) as other:
        other.execute("ALTER TABLE events DROP COLUMN checksum")
    with EventLog(path) as log, EventLog(path) as again:
        log.append("a", 1, ev.MachineRan("m"))
        assert [row.event for row in again.of_run("a")][1:] == [ev.MachineRan("m")]
        log.verify()
    with closing(sqlite3.connect(path)) as other:
        assert [
            found is None for (found,) in other.execute("SELECT checksum FROM events ORDER BY id")
        ] == [True, False]
        # An earlier version goes on writing to the log.
        other.execute(
            "INSERT INTO events (run, at_us, kind, body) VALUES ('a', 2, 'MachineRan', "
            '\'{"id":"n"}\')'
        )
        other.commit()
    with EventLog(path) as log:
        assert log.of_run("a")[-1].event == ev.MachineRan("n")


def test_a_changed_row_is_refused(path: Path) -> None:
    with EventLog(path) as log:
        log.append("a", 0, ev.RunBegan("job", "local", {}, "/f", 3))
        log.append("a", 1, ev.MachineRan("m"))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("DROP TRIGGER no_update")
        other.execute("UPDATE events SET at_us = 2 WHERE id = 2")
    with EventLog(path) as log, pytest.raises(BrokenLog, match="row 2 was changed"):
        log.of_run("a")


def test_a_log_of_a_later_format_is_refused(path: Path) -> None:
    EventLog(path).close()
    with sqlite3.connect(path) as other:
        other.execute("PRAGMA user_version = 9")
    other.close()
    with pytest.raises(BrokenLog, match="has format 9, but this version reads 1"):
        EventLog(path)


WRITE = """
import sys
from pathlib import Path
from spotctl.log.events import MachineRan
from spotctl.log.store import EventLog
log = EventLog(Path(sys.argv[1]))
for number in range(10**9):
    log.append("a", number, MachineRan(str(number)))
    print(number, flush=True)
"""


def test_appended_rows_survive_a_kill(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITE, str(path)], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        acknowledged = [int(writer.stdout.readline()) for _ in range(20)]
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged += [int(line) for line in writer.stdout]
    with EventLog(path) as log:
        kept = [row.at for row in log.of_run("a")]
    assert kept == list(range(len(kept)))
    assert set(acknowledged) <= set(kept)
