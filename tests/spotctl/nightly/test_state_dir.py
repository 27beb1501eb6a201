"""Records of nights."""

from __future__ import annotations

from pricing_data.units import HOUR, MINUTE
from spotctl.nightly.state_dir import SLOTS, NightStart, StateDir
from tests.spotctl.nightly.conftest import NIGHT
from tests.spotctl.nightly.test_history import GONE, began, ended, said


def test_a_start_without_an_end_whose_process_is_gone_is_a_problem(job: StateDir) -> None:
    began(job, NIGHT)
    (gone,) = said(job, MINUTE)
    assert f"02:00 did not end: its process {GONE} does not exist any more" in gone
    assert "spotctl nightly run small resumes it" in gone


def test_a_record_that_cannot_be_read_is_a_problem(job: StateDir) -> None:
    ended(job, NIGHT, 60)
    content = job.starts.path.read_bytes()
    job.starts.path.write_bytes(b"\xff" * 256 + content[256 : SLOTS * 200])
    (damaged,) = said(job, HOUR)
    assert "lines cannot be read; remove the file" in damaged
    job.starts.path.unlink()
    job.starts.path.mkdir()
    assert "starts: cannot be read" in said(job, MINUTE)[0]


def test_what_cannot_stand_in_a_line_is_left_out() -> None:
    start = NightStart(1, 2, 3, why='a "quoted"\nline $(x) \\ ' + "x" * 300)
    line = start.line().decode()
    assert line.startswith("number=1 began=2 pid=3 reported=no why=a quoted line (x) xxx")
    assert len(line) < 256
