"""Pictures and scores of estimates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.lab.beta.test_estimates import MARKET


@pytest.mark.usefixtures("moods")
def test_plot_draws_a_curve_that_falls_with_the_bid(tmp_path: Path, approved: Approved) -> None:
    picture = tmp_path / "curve.svg"
    shown = spotctl("lab", "beta", "show", MARKET, "--plot", picture, "--json").json
    assert {**shown, "plot": 0, "curve": 0} == {
        **spotctl("lab", "beta", "show", MARKET, "--json").json,
        "plot": 0,
        "curve": 0,
    }
    curve = shown["curve"]
    assert picture.read_text().startswith("<?xml")
    for key in ("probability", "low", "high", "historical_share"):
        values = [one[key] for one in curve]
        assert values == sorted(values, reverse=True), key
    assert curve[0]["probability"] > curve[-1]["probability"]
    ended = spotctl("lab", "beta", "show", MARKET, "--plot", tmp_path / "curve.gif")
    approved(ended)


@pytest.mark.usefixtures("moods")
def test_calibrate_scores_against_both_plain_shares(tmp_path: Path) -> None:
    picture = tmp_path / "reliability.png"
    words = ("--history", "6d", "--horizon", "1d", "--deltas", "0.00001,on-demand")
    ended = spotctl("lab", "beta", "calibrate", "aws", *words, "--json", "--out", picture)
    assert ended.code == 0, ended.err
    restless, never = ended.json["results"]
    assert restless["origins"] == 4
    assert restless["beats_both"] is True
    assert restless["against_own_share"]["low"] > 0
    assert restless["brier"] < restless["brier_own_share"]
    assert sum(band["starts"] for band in restless["reliability"]) == restless["starts"]
    # One model of all bids expects a few crossings even of the highest.
    assert (never["bid"], never["beats_both"]) == ("on-demand", False)
    assert never["brier"] < 0.001
    assert picture.read_bytes().startswith(b"\x89PNG")
    text = spotctl("lab", "beta", "calibrate", "aws", *words).out
    assert (
        "0.00001: better than both constant shares; methods used at 4 origins: present at 4" in text
    )
    assert "on-demand: no bid was crossed; Brier score given the present: 0.0001" in text
