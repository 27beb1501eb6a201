from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pytest

from pricing_data.errors import BadInput
from pricing_data.sources.observations import read_availability, read_lifetimes

HEADER = "cloud,zone,gpu,gpu_count,start,end,lifetime_h,preempted"


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_trace_counts_preemptions(tmp_path: Path) -> None:
    path = tmp_path / "four.json.gz"
    path.write_bytes(
        gzip.compress(
            json.dumps({"metadata": {"gap_seconds": 1800}, "data": [0, 4, 4, 1, 2, 0]}).encode()
        )
    )
    trace = read_availability(path)
    assert (trace.name, trace.wanted, len(trace), trace.preemptions, trace.machine_hours) == (
        "four",
        4,
        6,
        5,
        5.5,
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "is not an availability trace"),
        ("[1]", "is not an availability trace"),
        ("[" * 100_000, "trace.json: is not an availability trace: it is not complete JSON"),
        ('{"metadata": {"gap_seconds": 0}, "data": [1]}', "gap_seconds is 0; it must be above 0"),
        ('{"metadata": {"gap_seconds": 60}, "data": []}', "at least one tick|whole numbers"),
        ('{"metadata": {"gap_seconds": 60}, "data": [1, -1]}', "no count below 0"),
        ('{"metadata": {"gap_seconds": 60}, "data": [1.5]}', "whole numbers"),
        (
            '{"metadata": {"gap_seconds": 60}, "data": [[1], [2, 3]]}',
            "is not an availability trace",
        ),
    ],
)
def test_an_invalid_trace_is_reported(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_availability(written(tmp_path / "trace.json", content))


def test_censored_lifetimes_are_kept(tmp_path: Path) -> None:
    path = written(
        tmp_path / "lives.csv",
        f"{HEADER}\ngcp,us-west1-b,v100,1,2020-03-01 "
        "10:11:21+00:00,,0.25,1\ngcp,us-west1-b,k80,8,2020-03-01,,2,0\n",
    )
    lives = read_lifetimes(path)
    assert [(life.instance_type, life.seconds, life.preempted) for life in lives] == [
        ("v100x1", 900, True),
        ("k80x8", 7200, False),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("gcp,z,v100,1,soon,,1,1", "line 2: time 'soon'"),
        ("gcp,z,v100,1,2020-03-01,,-1,1", "line 2: .*at least 0"),
        ("gcp,z,v100,1,2020-03-01,,x,1", "line 2: could not convert"),
        ("gcp,z,v100,1,2020-03-01,,1,maybe", "line 2: preempted is 'maybe'"),
    ],
)
def test_a_bad_lifetime_is_reported_with_its_line(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_lifetimes(written(tmp_path / "lives.csv", f"{HEADER}\n{row}\n"))
    with pytest.raises(BadInput, match="no column cloud, zone"):
        read_lifetimes(written(tmp_path / "other.csv", "a,b\n1,2\n"))


def test_unreadable_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"[1, 2, 3]" * 99)[:-9])
    for name, message in (("none", "cannot be read: No such file"), ("cut.gz", "is damaged")):
        with pytest.raises(BadInput, match=message):
            read_availability(tmp_path / name)


def test_the_shared_records_match_their_summary(shared_data: Path) -> None:
    folder = shared_data / "availability"
    with (folder / "trace_stats.csv").open() as file:
        stats = {tuple(row["trace"].split("/")[1:]): row for row in csv.DictReader(file)}
    traces = [read_availability(path) for path in sorted(folder.glob("*.json.gz"))]
    assert len(traces) >= 30
    for trace in traces:
        row = stats[tuple(trace.name.split("__"))]
        assert (len(trace), trace.gap_seconds) == (int(row["ticks"]), int(row["gap_s"]))
    lives = read_lifetimes(folder / "dime2020_gcp_lifetimes.csv")
    assert 0 < sum(not life.preempted for life in lives) < len(lives)
