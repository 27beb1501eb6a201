"""A scenario of generated markets compares ways of bidding, by the same command as any other
backtest.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.spotctl.command_line import Ended, spotctl

SMALL = "{hours: 2, starts: 2, schemes: [minimum, minimum+20%], markets: {calm: {hosts: 3}}}"


def run(folder: Path, text: str, *options: str) -> Ended:
    path = folder / "bids.yaml"
    path.write_text(text)
    return spotctl("lab", "backtest", "run", path, "--workers", "1", *options, COLUMNS="140")


def test_every_way_has_a_row_under_both_payment_rules(tmp_path: Path) -> None:
    results = json.loads(run(tmp_path, SMALL, "--json").out)["results"]
    rows = {(row["way"], row["costs"]) for row in results}
    assert len(results) == len(rows) == 8
    assert {way for way, _ in rows} == {"on-demand", "minimum", "minimum+20%", "bidbrain"}
    assert all(row["unfinished"] == 0 and row["jobs"] == 2 for row in results)


def test_the_odds_are_compared_with_what_became_of_bids(tmp_path: Path) -> None:
    answer = json.loads(
        run(tmp_path, SMALL.replace("starts: 2", "starts: 2, tried_bids: 10"), "--json").out
    )
    (score,) = answer["odds"]
    assert score["market"] == "calm"
    assert score["bids"] == sum(band["bids"] for band in answer["bands"]) == 20
    assert all(band["low"] <= band["stated"] <= band["high"] for band in answer["bands"])


def test_the_table_says_that_the_markets_are_generated(tmp_path: Path) -> None:
    ended = run(tmp_path, SMALL, "--starts", "3")
    assert "generated market" in ended.out
    assert "3 jobs" in ended.err
    assert "generated markets" in ended.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SMALL.replace("minimum+20%", "maximum"), "no way of bidding is named 'maximum'"),
        (SMALL.replace("hosts", "hotels"), "markets.calm.hotels"),
        (SMALL.replace("hosts: 3", "rivals: -1"), "not below 0"),
        (SMALL.replace("hours: 2", "hours: 0"), "hours"),
        (SMALL.replace("{calm: {hosts: 3}}", "{}"), "markets"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    ended = run(tmp_path, text)
    assert ended.code == 2
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1
