"""`spotctl doctor`: the checks of this computer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.library import STALE
from pricing_data.market import Market
from pricing_data.store import PriceStore
from pricing_data.units import DAY
from spotctl.cli import doctor_checks as checks
from spotctl.clouds.doctor import Finding, Level
from spotctl.clouds.local.provider import LocalProvider
from spotctl.clouds.provider import MachineRequest
from spotctl.home.config import Settings
from spotctl.home.installation import INSTALLATION_TAG, installation_id
from tests.spotctl.clouds.leaving import kill_all
from tests.spotctl.clouds.markets import BEGIN, BID, CALM, CLOSES, market
from tests.spotctl.command_line import spotctl


@pytest.fixture(autouse=True)
def _no_clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "CLOUDSDK_")):
            monkeypatch.delenv(name)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "home"
    kill_all(tmp_path)


def findings(home: Path, now: int = 0) -> dict[tuple[str, str], Finding]:
    return {(one.about, one.what): one for one in checks.of_this_computer(Settings(home), now)}


def test_without_clouds_nothing_fails(tmp_path: Path) -> None:
    ended = spotctl("doctor", "--json")
    assert (ended.code, ended.err) == (0, "")
    levels = {(one["about"], one["what"]): one["level"] for one in ended.json["findings"]}
    assert levels["here", "home"] == levels["here", "disk"] == levels["runs", "orphans"] == "good"
    assert [levels[cloud, "credentials"] for cloud in ("aws", "gcp", "azure")] == ["note"] * 3
    assert not (tmp_path / "home" / "log.sqlite").exists()


def test_every_line_fits_a_narrow_terminal() -> None:
    shown = spotctl("doctor", COLUMNS="80")
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "-> run az login, and set AZURE_SUBSCRIPTION_ID" in shown.out


def test_a_home_that_is_not_writable_fails(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    one = findings(tmp_path / "home" / "inside")["here", "home"]
    assert one.level is Level.FAILS
    assert "SPOTCTL_HOME" in one.cure
    assert spotctl("--home", tmp_path / "home" / "inside", "doctor").code == 1


def test_a_full_disk_fails(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, level in ((checks.MIN_FREE - 1, Level.FAILS), (checks.MIN_FREE, Level.GOOD)):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: SimpleNamespace(free=free))
        assert findings(home)["here", "disk"].level is level


def test_old_prices_come_with_a_cure(home: Path) -> None:
    events = [
        PriceEvent(Market("aws", "us-east-1", "us-east-1a", "c5.large"), at, 5) for at in (0, DAY)
    ]
    PriceStore(home / "prices").commit(FetchedRows(prices=PriceBatch.of(events)))
    fresh = findings(home, DAY + STALE)["prices", "aws"]
    assert (fresh.level, fresh.detail) == (Level.GOOD, "newest 7 d old")
    stale = findings(home, 2 * DAY + STALE)["prices", "aws"]
    assert (stale.level, stale.cure) == (Level.NOTE, "run spotctl prices fetch --cloud aws")


def test_lost_prices_come_with_a_cure(home: Path) -> None:
    prices = home / "prices"
    event = PriceEvent(Market("aws", "us-east-1", "us-east-1a", "c5.large"), DAY, 5)
    PriceStore(prices).commit(FetchedRows(prices=PriceBatch.of([event])))
    (prices / "manifest.json").write_text("{")
    assert findings(home, DAY)["prices", "aws"].level is Level.GOOD, (
        "it is made again from the files"
    )
    for segment in prices.glob("**/*.parquet"):
        segment.unlink()
    lost = findings(home, DAY)["prices", "stored"]
    assert (lost.level, lost.cure) == (
        Level.FAILS,
        "run spotctl lab prices ls --check, which lists cures",
    )


def test_a_machine_of_a_lost_log_is_an_orphan(home: Path) -> None:
    provider = LocalProvider(home / "local", market)
    provider.begin(BEGIN, 1.0)
    (machine,) = provider.create(
        MachineRequest("t", CALM, 1, BID, CLOSES, {INSTALLATION_TAG: installation_id(home)})
    )
    one = findings(home)["runs", machine.id]
    assert (one.level, one.cure) == (Level.FAILS, "run spotctl gc")
    provider.terminate([machine.id])


def test_brackets_in_a_cure_are_printed_literally(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_is_installed", lambda module: module != "google.cloud.billing")
    assert findings(home)["here", "extra gcp-pricing"].level is Level.NOTE
    assert "-> pip install 'spotctl[gcp-pricing]'" in spotctl("doctor").out
