"""The public catalog over HTTP: which file is read, how it is dated, and what is not sent again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pricing_data.catalog import Catalog
from pricing_data.errors import NoAnswer, UnknownResource
from pricing_data.sources.base import FetchRequest
from pricing_data.units import DAY, HOUR, parse_time
from spotctl.clouds import public_catalog
from spotctl.clouds.public_catalog import PublicCatalog
from tests.pricing_data.sources.catalog_rows import AWS_COLUMNS, aws_row, csv_of
from tests.servers.loopback import Fault, LoopbackServer, Reply, serving
from tests.servers.price_catalog import PriceCatalog
from tests.servers.pulling import Pulled, pulled

NOW = parse_time("2026-11-30T20:00:00Z")
ROWS = csv_of(AWS_COLUMNS, [aws_row()])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(public_catalog, "_PAUSE", 0.001)


@pytest.fixture
def files() -> PriceCatalog:
    return PriceCatalog({(9, "aws"): ROWS})


@pytest.fixture
def server(files: PriceCatalog) -> Iterator[LoopbackServer]:
    with serving(files) as server:
        yield server


class Reader:
    """Fetches as the command does: what is stored is known to the next fetch."""

    def __init__(self, server: LoopbackServer, folder: Path) -> None:
        self._catalog = PublicCatalog(server.url, folder, Catalog)
        self._server = server
        self._covered: dict[str, object] = {}

    def fetch(self, cloud: str = "aws", now: int = NOW, regions: tuple[str, ...] = ()) -> Pulled:
        self._server.requests.clear()
        request = FetchRequest(now - DAY, now, regions, covered=self._covered)  # type: ignore[arg-type]
        got = pulled(self._catalog.task(cloud, request, by_zone=True))
        self._covered |= got.all.covered
        return got


@pytest.fixture
def reader(server: LoopbackServer, tmp_path: Path) -> Reader:
    return Reader(server, tmp_path / "catalog")


def test_the_newest_version_that_has_the_cloud_is_read_and_named(
    files: PriceCatalog, reader: Reader
) -> None:
    files.files |= {(8, "aws"): ROWS, (6, "azure"): ROWS, (8, "gcp"): ROWS}

    assert "SkyPilot catalog v9 of" in reader.fetch().all.notes[0]
    assert "SkyPilot catalog v6 of" in reader.fetch("azure").all.notes[0]


def test_a_cloud_that_no_version_has_is_reported(reader: Reader) -> None:
    error = reader.fetch("vast").error

    assert isinstance(error, UnknownResource)
    assert "no file of this cloud" in str(error)


def test_the_date_is_the_servers_or_when_the_file_was_first_seen(
    files: PriceCatalog, reader: Reader
) -> None:
    assert reader.fetch().events[0].time == NOW
    files.files[9, "aws"] += b"\n"
    files.changed = "Mon, 30 Nov 2026 12:00:00 GMT"
    assert reader.fetch().events[0].time == NOW - 8 * HOUR


def test_a_server_whose_clock_is_ahead_dates_nothing_in_the_future(
    files: PriceCatalog, reader: Reader
) -> None:
    files.changed = "Tue, 01 Dec 2026 12:00:00 GMT"

    assert reader.fetch().events[0].time == NOW


def test_a_file_that_did_not_change_is_neither_sent_nor_stored_again(
    files: PriceCatalog, reader: Reader, server: LoopbackServer
) -> None:
    reader.fetch()
    again = reader.fetch(now=NOW + HOUR)

    assert not again.events
    assert again.all.notes[0] == "aws: SkyPilot catalog v9 of 2026-11-30T20:00:00Z has not changed"
    assert server.requests[-1].headers["if-none-match"]

    files.files[9, "aws"] = csv_of(AWS_COLUMNS, [aws_row(spot="12.5")])
    (event,) = reader.fetch(now=NOW + 2 * HOUR).events
    assert (event.price, event.time) == (12_500_000_000, NOW + 2 * HOUR)


def test_a_part_that_was_not_stored_is_read_from_the_same_file(reader: Reader) -> None:
    reader.fetch(regions=("eu-west-1",))

    assert reader.fetch(regions=("us-east-1",)).events
    assert reader.fetch().events


def test_a_newer_version_is_found(files: PriceCatalog, reader: Reader) -> None:
    reader.fetch()
    files.files[10, "aws"] = ROWS

    assert "catalog v10 of" in reader.fetch().all.notes[0]


@pytest.mark.parametrize(
    "fault",
    [Fault("v9", cut=30), Fault("v9", Reply(503, b"busy")), Fault("v9", lost=True)],
    ids=["cut", "busy", "lost"],
)
def test_an_answer_that_does_not_arrive_is_asked_for_again(
    reader: Reader, server: LoopbackServer, fault: Fault
) -> None:
    server.faults.append(fault)

    assert len(reader.fetch().events) == 1


def test_a_connection_that_is_always_cut_brings_nothing(
    reader: Reader, server: LoopbackServer
) -> None:
    server.faults.append(Fault("v9", cut=30, times=-1))
    got = reader.fetch()

    assert isinstance(got.error, NoAnswer)
    assert not got.steps
    assert "price_catalog_url" in str(got.error)
    server.faults.clear()
    assert len(reader.fetch().events) == 1, "nothing is taken for stored"


def test_a_file_in_another_format_is_not_taken_for_stored(
    files: PriceCatalog, reader: Reader
) -> None:
    files.files[9, "aws"] = ROWS.replace(b"SpotPrice", b"Spot")
    assert "lacks a column SpotPrice" in str(reader.fetch().error)
    assert "lacks a column SpotPrice" in str(reader.fetch().error)
