from __future__ import annotations

from datetime import UTC, date, timedelta
from pathlib import Path

from spotctl.nightly.night_log import MOST_BYTES, MOST_NIGHTS, NightLog

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


def test_old_logs_are_deleted_and_long_ones_truncated(tmp_path: Path) -> None:
    for ahead in range(MOST_NIGHTS + 5):
        NightLog(tmp_path, DAY + timedelta(days=ahead), UTC, lambda: 0).write(["x"])
    kept = sorted(path.stem for path in tmp_path.glob("*.log"))
    assert len(kept) == MOST_NIGHTS
    assert kept[-1] == (DAY + timedelta(days=MOST_NIGHTS + 4)).isoformat()
    log = NightLog(tmp_path, DAY, UTC, lambda: 0)
    log.write(["x" * (MOST_BYTES // 2)] * 4)
    assert MOST_BYTES < (size := log.path.stat().st_size) < MOST_BYTES + 200
    log.write(["more"])
    assert log.path.stat().st_size == size
    assert "this log is full" in log.path.read_text()
