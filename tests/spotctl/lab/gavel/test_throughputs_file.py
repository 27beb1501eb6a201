"""Files of throughputs and traces, and what is wrong in them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.spotctl.approvals import Approved
from tests.spotctl.lab.gavel.test_simulate import (
    CLUSTER,
    GENERATED,
    HEADER,
    POLICY,
    simulated,
    written,
)


@pytest.mark.parametrize(
    "row",
    [
        "small,-n,1e300,1,1,-1,0",
        "small,-n,480,1,1,-1,1e300",
        "small,-n,lots,1,1,-1,0",
        "small,-n,0,1,1,-1,0",
        "small,-n,9,1.5,1,-1,0",
        "small,-n,9,1,1,-1",
        "small,-n,9,1,0,-1,0",
        "small,-n,9,1,1,nan,0",
    ],
)
def test_a_row_that_is_wrong_is_named(
    table: Path, tmp_path: Path, row: str, approved: Approved
) -> None:
    trace = written(tmp_path, "small,-n,10,1,1,-1,0", row)
    ended = simulated(table, "--trace", trace, *CLUSTER, *POLICY)
    approved(ended)


def test_a_trace_may_begin_with_the_mark_of_a_spreadsheet(table: Path, tmp_path: Path) -> None:
    trace = written(tmp_path, "small,-n,400,1,1,-1,0", header="\ufeff" + HEADER)
    assert (
        simulated(table, "--trace", trace, *CLUSTER, *POLICY, "--json").json["average_jct_seconds"]
        == 100
    )


def test_a_trace_without_a_column_or_a_known_job_is_named(
    table: Path, tmp_path: Path, approved: Approved
) -> None:
    trace = written(tmp_path, "small,9,1", header="job_type,total_steps,scale_factor")
    approved(simulated(table, "--trace", trace, *CLUSTER, *POLICY))
    trace = written(tmp_path, "huge,-n,10,1,1,-1,0")
    approved(simulated(table, "--trace", trace, *CLUSTER, *POLICY))


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[" * 100_000,
        "[]",
        '{"v100": {"(\'small\', 1)": {"null": true}}}',
        '{"v100": {"(\'small\', 1)": {"null": 1%s}}}' % ("0" * 400),
        '{"v100": {"%s": {"null": 1}}}' % ("(" * 5000),
        "{}",
        '{"v100": {"small": {"null": 1}}}',
        '{"v100": {"(\'small\', 0)": {"null": 1}}}',
        '{"v100": {"(\'small\', 1)": {}}}',
        '{"v100": {"(\'small\', 1)": {"null": -1}}}',
        '{"v100": {"(\'small\', 1)": {"null": null}}}',
        '{"v100": {"(\'small\', 1)": {"null": 1, "(\'small\', 1)": [1]}}}',
    ],
)
def test_a_table_that_is_wrong_is_named(tmp_path: Path, content: str, approved: Approved) -> None:
    path = tmp_path / "table.json"
    path.write_text(content)
    ended = simulated(path, *GENERATED, *CLUSTER, *POLICY)
    approved(ended)


def test_a_damaged_archive_is_named(tmp_path: Path, approved: Approved) -> None:
    path = tmp_path / "table.json.gz"
    path.write_bytes(gzip.compress(b'{"v100": {}}' * 100)[:-9])
    approved(simulated(path, *GENERATED, *CLUSTER, *POLICY))
