"""Settings of Slurm that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spotctl.command_line import spotctl


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("usd_per_hour = {spot = 'cheap'}", "a table of numbers for usd_per_hour"),
        ("usd_per_hour = {spot = 0}", "prices above 0 in usd_per_hour; that of spot is 0"),
        ("hours = 0", "more than 0 in hours"),
        ("wait_seconds = 900", "from 0 to 60 in wait_seconds"),
        ("partition = 'spot'", "partition is not one of them"),
    ],
)
def test_settings_that_are_wrong(tmp_path: Path, settings: str, said: str) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(f"[slurm]\n{settings}\n")
    ended = spotctl("--home", tmp_path / "home", "prices", "fetch", "--cloud", "slurm")
    assert ended.code == 2
    assert said in ended.err
    assert ended.err.count("\n") == 1
