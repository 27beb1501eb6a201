"""Reports keep what was billed, and say what a later correction of a stored price would change."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.store import PriceStore
from pricing_data.store.table import PriceCorrection
from pricing_data.units import HOUR
from tests.spotctl.command_line import spotctl
from tests.spotctl.show.costs.made import AWS, NIGHT, MadeRun, write_log

CENT = 10_000_000


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PriceStore:
    """Prices of a market at which one machine ran for four hours, and the log of that run."""
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    times, prices = (
        [NIGHT, NIGHT + HOUR, NIGHT + 2 * HOUR, NIGHT + 5 * HOUR],
        [10 * CENT, 10 * CENT, 30 * CENT, CENT],
    )
    made = MadeRun("small-1", "small", NIGHT)
    made.begin()
    made.price(
        AWS[0], [NIGHT, NIGHT + 2 * HOUR, NIGHT + 4 * HOUR], [10 * CENT, 30 * CENT, 30 * CENT]
    )
    names = made.rent(AWS[0], 1, NIGHT)
    made.end_machines(names, NIGHT + 4 * HOUR, "returned")
    made.finish(NIGHT + 4 * HOUR)
    write_log([made], tmp_path / "home")
    stored = PriceStore(tmp_path / "home" / "prices")
    events = [PriceEvent(AWS[0], time, price) for time, price in zip(times, prices, strict=True)]
    stored.commit(FetchedRows(prices=PriceBatch.of(events)))
    return stored


@pytest.mark.parametrize(
    ("at", "price", "made", "change"),
    [
        (NIGHT + 2 * HOUR, 20 * CENT, NIGHT + 9 * HOUR, -0.20),
        (NIGHT + 2 * HOUR, None, NIGHT + 9 * HOUR, -0.40),
        (NIGHT + HOUR, 15 * CENT, NIGHT + 9 * HOUR, 0.05),
        (NIGHT + 5 * HOUR, 20 * CENT, NIGHT + 9 * HOUR, None),
        (NIGHT + 2 * HOUR, 20 * CENT, NIGHT + HOUR, None),
    ],
)
def test_the_difference_is_that_of_the_corrected_hours(
    store: PriceStore, at: int, price: int | None, made: int, change: float | None
) -> None:
    before = spotctl("report", "cost", "--json").json
    assert "corrections" not in before
    store.correct(PriceCorrection(AWS[0], at, price, "a typo", made))
    after, shown = spotctl("report", "cost", "--json").json, spotctl("report", "cost")
    assert after["total_usd"] == before["total_usd"] == pytest.approx(0.8, abs=1e-3)
    if change is None:
        assert "corrections" not in after
        assert "correction" not in shown.err
        return
    (correction,) = after["corrections"]
    assert correction["run"] == "small-1"
    assert correction["made"] == "2026-06-01T11:00:00Z"
    assert correction["change_usd"] == pytest.approx(change, abs=1e-3)
    sign = "+" if change > 0 else "-"
    assert (
        f"small-1: a correction of 2026-06-01T11:00:00Z would change it by {sign}$0." in shown.err
    )
