from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from spotctl.home.paths import KEPT_DAYS
from spotctl.nightly.reporting import MAX_BYTES, NightLog
from spotctl.nightly.state_dir import NightStart, StateDir

DAY = date(2026, 5, 1)


def test_lines_begin_with_the_local_time(tmp_path: Path) -> None:
    log = NightLog(tmp_path / "logs", DAY, UTC, lambda: 1_780_000_000_000_000)
    log.write(["one", "two"])
    NightLog(tmp_path / "logs", DAY, UTC, lambda: 1_780_000_001_000_000).write(["three"])
    assert log.path.read_text().splitlines() == [
        "2026-05-28 20:26:40 UTC  one",
        "2026-05-28 20:26:40 UTC  two",
        "2026-05-28 20:26:41 UTC  three",
    ]


def test_a_full_log_is_not_continued(tmp_path: Path) -> None:
    log = NightLog(tmp_path, DAY, UTC, lambda: 0)
    log.write(["x" * (MAX_BYTES // 2)] * 4)
    assert MAX_BYTES < (size := log.path.stat().st_size) < MAX_BYTES + 200
    log.write(["more"])
    assert log.path.stat().st_size == size
    assert "this log is full" in log.path.read_text()


def test_files_of_old_nights_are_deleted_unless_their_failure_was_not_reported(
    tmp_path: Path,
) -> None:
    today = DAY + timedelta(days=KEPT_DAYS)
    days = [DAY - timedelta(days=1), DAY - timedelta(days=2), DAY, today]
    state_dir = StateDir(tmp_path, "small")
    state_dir.logs.mkdir(parents=True)
    for day in days:
        (state_dir.logs / f"{day.isoformat()}.log").touch()
    (state_dir.logs / "2020-99-99.log").touch()
    state_dir.starts.create()
    began = datetime.combine(days[1], time(12), UTC)
    state_dir.starts.write(NightStart(1, round(began.timestamp()), 1, round(began.timestamp()), 1))
    state_dir.delete_old(today, UTC)
    kept = {path.stem for path in state_dir.logs.iterdir()}
    assert kept == {"2020-99-99", *(day.isoformat() for day in days[1:])}


def test_a_night_goes_on_if_its_log_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    NightLog(tmp_path / "logs", DAY, UTC, lambda: 0).write(["one"])
    assert (tmp_path / "logs").read_bytes() == b""


def test_files_are_kept_for_as_many_days_as_the_page_says() -> None:
    page = Path(__file__).parents[3] / "docs" / "nightly.md"
    assert f"cost report of each night for {KEPT_DAYS} days" in " ".join(page.read_text().split())


def test_control_characters_of_what_a_cloud_says_are_shown(tmp_path: Path) -> None:
    log = NightLog(tmp_path, DAY, UTC, lambda: 0)
    log.write(["refused: \x1b[2J\u202e"])
    assert log.path.read_text().endswith("refused: \\x1b[2J\\u202e\n")
