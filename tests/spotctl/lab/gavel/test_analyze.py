"""`spotctl lab gavel analyze` from its entry point."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import Ended, spotctl


def by_case(answer: dict[str, Any]) -> dict[tuple[str, float, str], Any]:
    return {(row["job"], row["days"], row["strategy"]): row for row in answer["results"]}


def test_the_answers_are_those_of_a_pencil(analyze: Callable[..., Ended]) -> None:
    ended = analyze("--json", days=[2], starts=1, move="0s")
    assert ended.code == 0, ended.err
    rows = by_case(ended.json)
    usd = {(job, strategy): row["usd"] for (job, _, strategy), row in rows.items()}
    # Two V100-days of vision: 48 h for a dollar; on P100 128 h for half of one, on K80 768 h,
    # beyond the prices.
    assert (
        usd["vision", "fixed-type"]
        == usd["vision", "best-type"]
        == usd["vision", "multi-cloud"]
        == 48
    )
    assert usd["games", "fixed-type"] == 48
    # Two V100-days of games take four days on a K80, of which two cost 0.2 an hour.
    assert usd["games", "multi-cloud"] == pytest.approx(96 * 0.1)
    assert rows["games", 2, "multi-cloud"]["offers"] == {"azure 2xK80": 1}
    # 150 GB of data cost 13.50 on their way out of Amazon, which is more than the 9.60 there: still
    # less than 48.
    assert usd["games", "dynamic+data"] == pytest.approx(9.6 + 13.5)
    assert rows["games", 2, "dynamic+data"]["moved_usd"] == pytest.approx(13.5)
    assert rows["games", 2, "dynamic"]["reduction"] == pytest.approx(5)
    assert ended.json["begin"] == "2020-03-01T00:00:00Z"
    assert ended.json["markets"] == 3


def test_a_job_moves_when_the_price_rises(analyze: Callable[..., Ended]) -> None:
    ended = analyze("--json", days=[6], starts=1, jobs=["vision"], move="1h")
    rows = by_case(ended.json)
    # Four days at a dollar; then two V100-days are left: 96 dollars there, 128.5 h for half of one
    # on the P100.
    moved = rows["vision", 6, "dynamic"]
    assert (moved["moves"], moved["jobs"]) == (1, 1)
    assert moved["usd"] == pytest.approx(96 + 0.5 * 129 + 0.098 * 0.09)
    assert rows["vision", 6, "multi-cloud"]["usd"] == 96 + 96


def test_evictions_make_a_cloud_dearer(analyze: Callable[..., Ended]) -> None:
    plain, evicted = (
        analyze("--json", days=[1], starts=1, evictions=rates) for rates in ({}, {"azure": 0.5})
    )
    before, after = (
        by_case(one.json)["games", 1, "multi-cloud"]["usd"] for one in (plain, evicted)
    )
    share = next(one["useful_share"] for one in evicted.json["prices"] if one["cloud"] == "azure")
    # An eviction every two hours costs five minutes: exp(-1/24) of the time is work.
    assert share == pytest.approx(0.95919, abs=1e-5)
    assert after == pytest.approx(before / share)


def test_what_is_left_out_is_said(analyze: Callable[..., Ended]) -> None:
    ended = analyze("--json", days=[2, 9])
    assert "left out: types missing from the catalog: azure/Standard_NC24rs_v2" in ended.err
    assert "left out: 1 types without an accelerator" in ended.err
    assert ended.json["remarks"] == ended.err.splitlines()
    told = analyze("--json", days=[2], machines={"azure/Standard_NC24rs_v2": "P100x4"})
    assert "does not know" not in told.err
    assert told.json["markets"] == 4


def test_stored_prices_are_taken_where_no_file_is_given(
    analyze: Callable[..., Ended], files: dict[str, Any]
) -> None:
    assert spotctl("prices", "import", *files["prices"]).code == 0
    stored, given = (
        analyze("--json", prices=None, days=[2], starts=2),
        analyze("--json", days=[2], starts=2),
    )
    assert stored.code == 0, stored.err
    assert stored.json["results"] == given.json["results"]


@pytest.mark.parametrize(
    "terms",
    [
        {"home": "us-east-1"},
        {"home": "aws/us-west-9"},
        {"baseline": "H100"},
        {"baseline": "K80"},
        {"days": [1, "soon"]},
        {"days": [0]},
        {"days": [400]},
        {"starts": 0},
        {"jobs": ["nothing*"]},
        {"move": "soon"},
        {"dataset_gb": -1},
        {"checkpoint_gb": "many"},
        {"dataset_on": ["aws", "ibm"]},
        {"evictions": {"ibm": 1}},
        {"evictions": {"aws": -1}},
        {"machines": {"P100": "x"}},
        {"markets": "gcp/*"},
        {"prices": ["none.csv"]},
        {"throughputs": "none.json"},
        {"throughputs": None},
        {"thoughputs": 1},
    ],
)
def test_what_cannot_be_analysed_is_one_line_and_code_2(
    analyze: Callable[..., Ended], terms: dict[str, object], approved: Approved
) -> None:
    ended = analyze("--json", **terms)
    approved(ended)
    assert ended.out == ""


def test_recorded_markets_give_the_published_tables(
    shared_data: Path, analyze: Callable[..., Ended]
) -> None:
    files = [
        shared_data / "prices" / f"{name}.csv.gz"
        for name in ("aws_gpu_2019-12_2020-03", "azure_gpu_2020-02_2020-03")
    ]
    table = shared_data / "gavel" / "simulation_throughputs.json.gz"
    ended = analyze("--json", prices=list(map(str, files)), throughputs=str(table), days=[4])
    assert ended.code == 0, ended.err
    printed = {
        (one["table"], one["what"]): one
        for one in ended.json["figures"]
        if one["paper"] is not None
    }
    # Tables 6.2 and 6.3 are about the same prices. They are printed with two digits.
    for (kind, what), one in printed.items():
        if kind in ("6.2", "6.3"):
            assert one["found"] == pytest.approx(one["paper"], rel=0.05), what
    assert len([kind for kind, _ in printed if kind == "6.3"]) == 5
    assert printed["6.5", "dynamic over fixed-type, 4 days, best"]["found"] > 3.5
    assert printed["6.6", "moves of one job, most (paper: at most)"]["found"] <= 3
    rows = by_case(ended.json)
    for job in {job for job, _, _ in rows}:
        ladder = [
            rows[job, 4, name]["reduction"]
            for name in ("fixed-type", "best-type", "multi-gpu", "multi-cloud")
        ]
        assert ladder == sorted(ladder)
