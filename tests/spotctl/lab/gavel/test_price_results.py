"""The price analysis as tables and files."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.spotctl.command_line import Ended


def test_the_tables_and_the_files(analyze: Callable[..., Ended], tmp_path: Path) -> None:
    out = tmp_path / "made" / "for it"
    ended = analyze("--out", out, days=[1, 2], starts=3)
    assert ended.code == 0, ended.err
    assert "Dollars for a job of 2 V100-days" in ended.out
    assert [
        line.split()[0] for line in ended.out.splitlines() if line.startswith(("vision", "games"))
    ] == [
        "vision",
        "games",
    ]
    assert "aws/us-east-1 V100: on-demand over spot" in ended.out
    for name in ("reduction", "by_length", "prices"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((out / "costs.csv").read_text().splitlines()))
    assert len(rows) == 2 * 2 * 6
    assert {
        row["offers"].rpartition(" ")[0] for row in rows if row["strategy"] == "fixed-type"
    } == {"aws 1xV100"}
    assert next(csv.reader((out / "figures.csv").read_text().splitlines())) == [
        "table",
        "what",
        "found",
        "paper",
        "unit",
        "case",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_no_number_is_folded_and_no_line_is_longer_than_the_terminal(
    analyze: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = analyze(days=[2], starts=1).out.splitlines()
    assert max(map(len, lines)) <= width
    (vision,) = [line for line in lines if line.startswith("vision")]
    assert len(vision.replace(" (", "(").split()) == (7 if width == 80 else 9)
    assert any(line.startswith("mean reduction") for line in lines) == (width == 80)
