"""Stores agree with a recount without product code; `python -m tests.pricing_data.recount` checks
all records.
"""

from __future__ import annotations

import gzip
import random
from pathlib import Path

from tests.pricing_data.recount import differences
from tests.spotctl.command_line import spotctl

_HEADER = "timestamp,cloud,region,zone,instance_type,product,spot_price"


def a_history_with_holes(path: Path) -> Path:
    """Three markets with prices each day of four months, in which one is silent for a while, and
    later all are.
    """
    draw, lines = random.Random(7), [_HEADER]
    for zone, silent in (("a", range(0)), ("b", range(20, 34)), ("c", range(0))):
        price = 400
        for day in (day for day in range(120) if day not in silent and not 60 <= day < 71):
            for hour in sorted(draw.sample(range(24), draw.randint(1, 3))):
                price = max(1, price + draw.randint(-90, 90)) if draw.random() < 0.97 else 9_000
                time = f"2024-{1 + day // 28:02}-{1 + day % 28:02}T{hour:02}:{draw.randint(10, 59)}:07Z"
                lines.append(
                    f"{time},aws,us-east-1,us-east-1{zone},m4.large,Linux/UNIX,0.{price:04}"
                )
                price = 400 if price == 9_000 else price
    lines += draw.sample(lines[1:], 20)
    with gzip.open(path, "wt", encoding="utf-8") as out:
        out.write("\n".join(lines))
    return path


def check(home: Path, *paths: Path) -> int:
    assert spotctl("--home", home, "prices", "import", *paths).code == 0
    answered = spotctl("--home", home, "lab", "prices", "ls", "--stats", "--json").json["markets"]
    gaps = spotctl("--home", home, "lab", "prices", "ls", "--gaps", "--json").json["gaps"]
    assert differences(list(paths), answered, gaps) == []
    wrong = [{**answered[0], "mean": answered[0]["mean"] * 1.000001}, *answered[1:]]
    assert [line.split()[1] for line in differences(list(paths), wrong, gaps)] == ["mean"]
    return len(gaps)


def test_every_figure_of_a_store_with_holes_is_over_observed_time(tmp_path: Path) -> None:
    path = a_history_with_holes(tmp_path / "history.csv.gz")
    assert check(tmp_path / "home", path) >= 4


def test_a_recorded_file_is_recounted(shared_data: Path, tmp_path: Path) -> None:
    check(tmp_path / "home", shared_data / "prices" / "azure_gpu_2020-02_2020-03.csv.gz")
