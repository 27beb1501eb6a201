"""`spotctl lab prices snapshot` and `prices import`: what one installation observed, another one
imports.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.market import Market
from pricing_data.series import WatchRecord
from pricing_data.store import PriceStore
from pricing_data.store.segments import SegmentFile, SegmentWriter, StoredUnits
from pricing_data.units import DAY, HOUR, Span, parse_time
from tests.pricing_data.histories import stored
from tests.servers.loopback import Reply, Request, serving
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import Ended, spotctl

START = parse_time("2026-03-01")
QUIET, BUSY, UNSEEN = (
    Market.parse(f"aws/us-east-1/us-east-1a/{name}")
    for name in ("c5.large", "p3.2xlarge", "m5.large")
)


@dataclass(frozen=True)
class Site:
    """A web server with one file."""

    content: bytes

    def answer(self, _: Request) -> Reply:
        return Reply(200, self.content)


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A snapshot of a day on which one market changed, one was watched without a change, and one
    was not watched.
    """
    events = [PriceEvent(QUIET, START - 30 * DAY, 5), PriceEvent(UNSEEN, START - 9 * DAY, 7)]
    events += [PriceEvent(BUSY, START + hour * HOUR, 100 + hour) for hour in range(-2, 30)]
    watched = {
        QUIET: WatchRecord((Span(START - 30 * DAY, START + 12 * HOUR),)),
        BUSY: WatchRecord((Span(START - 2 * HOUR, START + 29 * HOUR),)),
        UNSEEN: WatchRecord((Span(START - 9 * DAY, START - 8 * DAY),)),
    }
    PriceStore(tmp_path / "one" / "prices").commit(
        FetchedRows(prices=PriceBatch.of(events), watched=watched)
    )
    made = share(
        tmp_path / "one", "--out", tmp_path / "shared", "--day", "2026-03-01", "--json"
    ).json
    assert [(one["markets"], one["events"]) for one in made["files"]] == [(2, 25)]
    return Path(made["files"][0]["file"])


def share(home: Path, *words: str | Path) -> Ended:
    return spotctl("--home", home, "lab", "prices", "snapshot", *words)


def take(home: Path, *words: str | Path) -> Ended:
    return spotctl("--home", home, "prices", "import", *words)


def test_an_import_is_idempotent_and_honest_about_what_was_watched(
    tmp_path: Path, shared: Path
) -> None:
    for added in (25, 0):
        ended = take(tmp_path / "two", shared, "--json")
        assert ended.code == 0
        assert (ended.json["files"][0]["layout"], ended.json["files"][0]["added"]) == (
            "snapshot",
            added,
        )
        assert "signature" not in ended.err
    store = PriceStore(tmp_path / "two" / "prices")
    assert set(store.markets()) == {QUIET, BUSY}
    quiet, busy = stored(store, QUIET), stored(store, BUSY)
    assert quiet.watched == (Span(START, START + 12 * HOUR),)
    assert (quiet.price_at(START), quiet.last) == (5, START + 12 * HOUR)
    assert busy.watched is None
    assert (busy.first, busy.last) == (START, START + DAY)
    assert [busy.price_at(START + hour * HOUR) for hour in range(24)] == [
        100 + hour for hour in range(24)
    ]


def test_a_snapshot_on_a_web_server_is_imported(tmp_path: Path, shared: Path) -> None:
    with serving(Site(shared.read_bytes())) as server:
        ended = take(tmp_path / "two", f"{server.url}/aws.parquet", "--json")
        assert (ended.code, ended.json["files"][0]["file"]) == (0, f"{server.url}/aws.parquet")
    assert PriceStore(tmp_path / "two" / "prices").size()[0] == 25


def test_the_signature_of_an_earlier_version_is_not_checked_which_is_said_once(
    tmp_path: Path, shared: Path, approved: Approved
) -> None:
    with SegmentFile(shared) as file:
        note, table = json.loads(file.notes[b"spotctl.snapshot"]), file.read()
    for name in ("one", "other"):
        with SegmentWriter(tmp_path / f"{name}.parquet", StoredUnits.of(table)) as writer:
            writer.add(table)
            writer.note(
                b"spotctl.snapshot",
                json.dumps({**note, "signer": "00", "signature": name}).encode(),
            )
    ended = take(tmp_path / "two", tmp_path / "one.parquet", tmp_path / "other.parquet", "--json")
    assert [file["added"] for file in ended.json["files"]] == [25, 0]
    assert [file["unused_columns"] for file in ended.json["files"]] == [["signature"]] * 2
    approved(ended)


def test_a_changed_file_is_refused_or_read_as_the_whole_one(tmp_path: Path, shared: Path) -> None:
    whole = shared.read_bytes()
    for at in range(4, len(whole), len(whole) // 12):
        shared.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        ended = take(tmp_path / f"home-{at}", shared)
        assert ended.code in (0, 2)
        assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ("--out", ".", "--day", "soon", "--cloud", "aws"),
        ("--out", ".", "--day", "2020-01-01", "--cloud", "aws"),
    ],
)
def test_a_day_that_cannot_be_shared_is_one_line(
    tmp_path: Path, words: tuple[str, ...], approved: Approved
) -> None:
    ended = share(tmp_path / "two", *words)
    approved(ended)


@pytest.mark.parametrize("content", [None, b"", b"no Parquet"])
def test_what_is_no_snapshot_is_one_line(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "it.parquet"
    if content is not None:
        file.write_bytes(content)
    ended = take(tmp_path / "two", file)
    assert ended.code == 2
    assert ("cannot be read: No such file" if content is None else "is not a snapshot") in ended.err
    assert "move" not in ended.err, "the cure for a damaged store"


def test_the_same_prices_give_the_same_file(tmp_path: Path, shared: Path) -> None:
    before = shared.read_bytes()
    assert share(tmp_path / "one", "--out", tmp_path / "shared", "--day", "2026-03-01").code == 0
    assert shared.read_bytes() == before
