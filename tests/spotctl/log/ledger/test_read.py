"""The ledger of active runs, and of selected jobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pricing_data.library import Library
from pricing_data.market import Market
from pricing_data.store import PriceStore
from pricing_data.units import DAY, HOUR, MINUTE, parse_time
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.log import events as ev
from spotctl.log.jobs import JobLock
from spotctl.log.ledger_reader import events_of, read, stored_prices
from spotctl.log.store import EventLog
from tests.spotctl.log.ledger.histories import JOB, nights

MARKET = Market.parse("local/sim-east/sim-east-a/c4.xlarge")
AT = parse_time("2026-01-20T00:00:00Z")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


def interrupted(settings: Settings) -> None:
    """A run of one machine whose lease ends after a quarter of an hour, and the market's clock days
    later.
    """
    from spotctl.clouds.local.provider import LocalProvider
    from spotctl.clouds.local.replayed import Replayed

    LocalProvider(settings.home / "local", lambda: Replayed.of(())).begin(AT + 5 * DAY, 1.0)
    job = settings.home / "job.yaml"
    job.write_text(JOB)
    with EventLog(settings.home / "log.sqlite") as log:
        log.append(
            "r-1",
            AT,
            ev.RunBegan(
                "r", "local", {"name": "r", "kind": "command", "run": "x", **_LOCAL}, "", 1
            ),
        )
        log.append("r-1", AT, ev.RentIntended(1, MARKET, 1, None, 100, 4.0, True, AT + 15 * MINUTE))
        log.append("r-1", AT, ev.Rented(1, (ev.Granted("m", AT),)))
        log.append("r-1", AT + MINUTE, ev.MachineRan("m"))


_LOCAL = {"resources": {"clouds": ["local"], "types": ["c4.xlarge"]}}


def test_an_interrupted_run_is_charged_until_its_leases_end(settings: Settings) -> None:
    interrupted(settings)
    (run,) = read(settings)
    assert max(row.end for row in run.ledger.rows) == AT + 15 * MINUTE
    assert not any(row.settled for row in run.ledger.rows)
    with JobLock(settings.home / "locks", "r"):
        (run,) = read(settings)
        assert max(row.end for row in run.ledger.rows) >= AT + 5 * DAY


def test_the_last_known_price_holds_and_earlier_ones_are_not_invented(settings: Settings) -> None:
    history = Library(PriceStore(settings.price_store)).series(MARKET)
    tariff = stored_prices(settings, Library(PriceStore(settings.price_store)))
    later = tariff.prices(MARKET, history.last + HOUR)
    assert later.last == history.last + HOUR
    assert later.price_at(later.last) == history.price_at(history.last)
    assert np.array_equal(later.window(history.first, history.last).prices, history.prices)
    assert tariff.prices(MARKET, history.last - HOUR).last == history.last - HOUR
    with pytest.raises(
        BadRequest, match="stored prices begin at 2026-01-01T00:00:00Z, but the run needs 2025"
    ):
        tariff.prices(MARKET, history.first - HOUR)


def test_without_a_log_there_are_no_runs(settings: Settings) -> None:
    assert read(settings) == []


def test_jobs_and_the_newest_of_their_runs_are_found(settings: Settings) -> None:
    names = nights(settings.home, 2, job=JOB.replace("250", "10"))
    assert [run.events[0].run for run in read(settings, ["nightly-recsys"])] == names
    assert read(settings, ["another"]) == []
    assert [events[0].run for events in events_of(settings, lambda _: True, 1)] == names[1:]
