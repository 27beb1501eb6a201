"""Narrow terminals: columns are left out or put below each other, and no name or number is
broken."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from bidbrain.lab.backtest.results import ConfidenceInterval
from bidbrain.lab.calibration import Calibration
from pricing_data.list_prices import EgressPrice
from pricing_data.query import QueryResult
from spotctl.cli.session import Session
from spotctl.home.printable import wrapped
from spotctl.lab.beta import results as beta_results
from spotctl.show import terminal
from spotctl.show.layout import pairs_table
from tests.spotctl.show.runs.made_up_run import text

MARKET = "aws/us-east-1/us-east-1a/c5.large"
EVEN = ConfidenceInterval(0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("width", "lines"),
    [(60, ["market  usd", f"{MARKET}  1.5"]), (35, [f"market  {MARKET}", "usd     1.5"])],
)
def test_rows_of_a_query_that_do_not_fit_stand_below_each_other(
    width: int, lines: list[str]
) -> None:
    shown = text(terminal.rows(QueryResult(("market", "usd"), [(MARKET, 1.5)]), width), 120)
    assert [" ".join(line.split()) for line in shown if line.strip()] == [
        " ".join(line.split()) for line in lines
    ]


def test_the_bids_of_a_calibration_stay_whole() -> None:
    one = Calibration(7, 2016, 0.021, 0.02, 0.02, 0.02, EVEN, EVEN, {}, ())
    for width, columns in ((80, 7), (140, 12)):
        head, line, *_ = text(beta_results.scores_view({"on-demand": one}, width), width)
        assert line.startswith("on-demand ")
        assert len(head.replace("bid above price", "bid").split()) == columns


def test_a_long_value_is_folded_and_not_cut() -> None:
    shown = text(pairs_table([("model", "a" * 64)]), 40)
    assert "".join(shown).count("a") == 64


def test_tiers_of_a_price_list_begin_with_what_is_free() -> None:
    tiers = ((0.0, 0.0), (100.0, 0.09))
    shown = "\n".join(text(terminal.egress(EgressPrice(tiers, 0, "list"), 500, 36.0), 120))
    assert "free up to 100 GB, $0.09/GB above 100 GB" in shown
    assert (
        "$0.05/GB\n"
        in "\n".join(text(terminal.egress(EgressPrice(((0.0, 0.05),), 0, "x"), 1, 0.05), 120))
        + "\n"
    )


@given(st.lists(st.text("abc-/", min_size=1, max_size=30), min_size=1), st.integers(20, 60))
def test_a_wrapped_remark_has_all_its_words_whole(words: list[str], width: int) -> None:
    line = " ".join(words)
    parts = wrapped(line, width).split("\n")
    assert " ".join(parts).split() == words
    assert all(len(part) <= width or " " not in part for part in parts)
    assert wrapped(line, None) == line


def test_the_rest_of_a_long_line_of_a_result_is_indented_and_a_time_stays_whole() -> None:
    line = (
        "amounts differ        i-0123456789abcdef0  2026-01-01T00:00:00Z to 2026-01-01T05:00:00Z  "
        "ledger $1.000000"
    )
    assert wrapped(line, 60, 2).split("\n") == [
        "amounts differ        i-0123456789abcdef0",
        "  2026-01-01T00:00:00Z to 2026-01-01T05:00:00Z  ledger",
        "  $1.000000",
    ]


def test_a_result_on_a_terminal_breaks_no_word_and_in_a_pipe_no_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "from 2026-01-01T00:00:00Z to 2026-01-01T05:00:00Z"
    Session(None).say(line)
    monkeypatch.setattr("spotctl.home.printable.width_of", lambda _: 30)
    Session(None).say(line, indent=2)
    shown = capsys.readouterr().out.splitlines()
    assert shown == [line, "from 2026-01-01T00:00:00Z to", "  2026-01-01T05:00:00Z"]
