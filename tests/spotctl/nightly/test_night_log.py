from __future__ import annotations

from datetime import UTC, date, timedelta
from pathlib import Path

from spotctl.nightly.night_log import MOST_BYTES, MOST_NIGHTS, NightLog

DAY = date(2026, 5, 1)


def test_a_line_has_the_time_on_the_clock(tmp_path: Path) -> None:
    diary = NightLog(tmp_path / "logs", DAY, UTC, lambda: 1_780_000_000_000_000)
    diary.write(["one", "two"])
    NightLog(tmp_path / "logs", DAY, UTC, lambda: 1_780_000_001_000_000).write(["three"])
    assert diary.path.read_text().splitlines() == [
        "2026-05-28 20:26:40 UTC  one",
        "2026-05-28 20:26:40 UTC  two",
        "2026-05-28 20:26:41 UTC  three",
    ]


def test_old_nights_go_and_a_night_that_says_too_much_is_cut(tmp_path: Path) -> None:
    for ahead in range(MOST_NIGHTS + 5):
        NightLog(tmp_path, DAY + timedelta(days=ahead), UTC, lambda: 0).write(["x"])
    kept = sorted(path.stem for path in tmp_path.glob("*.log"))
    assert len(kept) == MOST_NIGHTS
    assert kept[-1] == (DAY + timedelta(days=MOST_NIGHTS + 4)).isoformat()
    diary = NightLog(tmp_path, DAY, UTC, lambda: 0)
    diary.write(["x" * (MOST_BYTES // 2)] * 4)
    assert MOST_BYTES < (size := diary.path.stat().st_size) < MOST_BYTES + 200
    diary.write(["more"])
    assert diary.path.stat().st_size == size
    assert "this log is full" in diary.path.read_text()
