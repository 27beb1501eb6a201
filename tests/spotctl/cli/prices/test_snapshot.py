"""`spotctl lab prices snapshot`: what one installation observed, another one imports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.market import Market
from pricing_data.series import WatchRecord
from pricing_data.store import PriceStore
from pricing_data.units import DAY, HOUR, Span, parse_time
from tests.servers.loopback import Reply, Request, serving
from tests.spotctl.command_line import Ended, spotctl

START = parse_time("2026-03-01")
QUIET, BUSY, UNSEEN = (
    Market.parse(f"aws/us-east-1/us-east-1a/{name}") for name in ("c5.large", "p3.2xlarge", "m5.large")
)


@dataclass(frozen=True)
class Site:
    """A web server with one file."""

    content: bytes

    def answer(self, _: Request) -> Reply:
        return Reply(200, self.content)


@pytest.fixture
def shared(tmp_path: Path) -> tuple[Path, str]:
    """A snapshot of a day on which one market changed, one was watched without a change, and one was not watched."""
    events = [PriceEvent(QUIET, START - 30 * DAY, 5), PriceEvent(UNSEEN, START - 9 * DAY, 7)]
    events += [PriceEvent(BUSY, START + hour * HOUR, 100 + hour) for hour in range(-2, 30)]
    watched = {
        QUIET: WatchRecord((Span(START - 30 * DAY, START + 12 * HOUR),)),
        BUSY: WatchRecord((Span(START - 2 * HOUR, START + 29 * HOUR),)),
        UNSEEN: WatchRecord((Span(START - 9 * DAY, START - 8 * DAY),)),
    }
    PriceStore(tmp_path / "one" / "prices").commit(FetchedRows(prices=PriceBatch.of(events), watched=watched))
    made = run(tmp_path / "one", "make", "--out", tmp_path / "shared", "--day", "2026-03-01", "--json").json
    assert [(one["markets"], one["events"]) for one in made["files"]] == [(2, 25)]
    return Path(made["files"][0]["file"]), made["signer"]


def run(home: Path, *words: str | Path) -> Ended:
    return spotctl("--home", home, "prices", "snapshot", *words)


def test_an_import_is_idempotent_and_honest_about_what_was_watched(tmp_path: Path, shared: tuple[Path, str]) -> None:
    path, signer = shared
    for added in (25, 0):
        ended = run(tmp_path / "two", "add", path, "--trust", signer, "--json")
        assert ended.code == 0
        assert ended.json["files"][0]["added"] == added
    store = PriceStore(tmp_path / "two" / "prices")
    assert set(store.markets()) == {QUIET, BUSY}
    quiet, busy = store.series(QUIET), store.series(BUSY)
    assert quiet.watched == (Span(START, START + 12 * HOUR),)
    assert (quiet.price_at(START), quiet.last) == (5, START + 12 * HOUR)
    assert busy.watched is None
    assert (busy.first, busy.last) == (START, START + DAY)
    assert [busy.price_at(START + hour * HOUR) for hour in range(24)] == [100 + hour for hour in range(24)]


def test_a_snapshot_on_a_web_server_is_imported(tmp_path: Path, shared: tuple[Path, str]) -> None:
    path, signer = shared
    with serving(Site(path.read_bytes())) as server:
        assert run(tmp_path / "two", "add", f"{server.url}/aws.parquet", "--trust", signer).code == 0
    assert PriceStore(tmp_path / "two" / "prices").size()[0] == 25


def test_an_unknown_signer_and_a_changed_file_are_refused(tmp_path: Path, shared: tuple[Path, str]) -> None:
    path, signer = shared
    refused = run(tmp_path / "two", "add", path)
    assert refused.code == 2
    assert f"signed by {signer}, which is not trusted (add --trust {signer})" in refused.error
    whole = path.read_bytes()
    for at in range(4, len(whole), len(whole) // 12):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        ended = run(tmp_path / "two", "add", path, "--trust", signer)
        if ended.code == 0:
            continue
        assert ended.code == 2
        assert "Traceback" not in ended.err
    path.write_bytes(whole)
    run(tmp_path / "three", "add", path, "--trust", signer)
    two, three = (PriceStore(tmp_path / name / "prices") for name in ("two", "three"))
    assert two.size()[0] in (0, 25)
    if two.size()[0]:
        assert [series.prices.tolist() for series in two.table()] == [
            series.prices.tolist() for series in three.table()
        ]


def test_the_same_prices_give_the_same_file(tmp_path: Path, shared: tuple[Path, str]) -> None:
    before = shared[0].read_bytes()
    assert run(tmp_path / "one", "make", "--out", tmp_path / "shared", "--day", "2026-03-01").code == 0
    assert shared[0].read_bytes() == before
    assert (tmp_path / "one" / "snapshot-key").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("make", "--out", ".", "--day", "soon", "--cloud", "aws"), "day 'soon' is not a date"),
        (("make", "--out", ".", "--day", "2020-01-01", "--cloud", "aws"), "no prices of aws were recorded on 2020-"),
        (("add", "nothing.parquet"), "cannot be read: No such file"),
        (("add", __file__), "is not a snapshot"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    ended = run(tmp_path / "two", *words)
    assert ended.code == 2
    assert message in ended.error
    assert "move" not in ended.error, "the cure for a damaged store"
