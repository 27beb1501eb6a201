"""Observed availability in the store: imported traces and lives, and what runs observed."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from pricing_data.availability import AvailabilitySpan
from pricing_data.fetched_rows import FetchedRows
from pricing_data.ingest import ingest
from pricing_data.market import Market
from pricing_data.store import PriceStore
from pricing_data.store.facts import AVAILABILITY
from pricing_data.units import HOUR, MINUTE, parse_time

MARKET = Market("aws", "us-east-1", "us-east-1a", "p3.2xlarge")
NAME = "availability__1-node__aws-02-15-2023__us-east-1a_v100_1.json.gz"
START = parse_time("2023-02-15")
TICKS = [0, 0, 1, 1, 1, 0]


def trace(path: Path, **metadata: object) -> Path:
    content = {"metadata": {"gap_seconds": 600, **metadata}, "data": TICKS}
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    return path


def test_a_trace_that_is_named_after_its_zone_becomes_spans_of_its_market(tmp_path: Path) -> None:
    store = PriceStore(tmp_path / "prices")
    report = ingest(store, trace(tmp_path / NAME))
    assert (report.failure, report.layout, report.facts) == (None, "availability", 3)
    down, up, gone = store.facts(AVAILABILITY, "aws")
    assert (down.market, down.since, down.until, down.up) == (
        MARKET,
        START,
        START + 20 * MINUTE,
        False,
    )
    assert (up.since, up.until, up.ended) == (START + 20 * MINUTE, START + 50 * MINUTE, "evicted")
    assert (gone.until, gone.ended) == (START + HOUR, "")
    assert store.facts(AVAILABILITY, "gcp") == []
    ingest(store, tmp_path / NAME)
    assert len(store.facts(AVAILABILITY)) == 3, "imported twice equals once"


def test_a_trace_may_name_its_market_itself(tmp_path: Path) -> None:
    store, market = PriceStore(tmp_path / "prices"), "gcp/us-central1/us-central1-a/c3-highcpu-88"
    ingest(
        store, trace(tmp_path / "mine.json", market=market, start="2023-04-30T10:00:00Z", wanted=2)
    )
    spans = store.facts(AVAILABILITY, "gcp")
    assert {str(span.market) for span in spans} == {market}
    assert spans[0].since == parse_time("2023-04-30T10:00:00Z")
    assert spans[1].wanted == 2
    report = ingest(store, trace(tmp_path / "unnamed.json"))
    assert report.failure is not None
    assert 'add "market"' in report.failure


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"market": "aws/mars"}, "aws/mars"),
        ({"wanted": "two"}, "'two' wanted machines"),
        ({"wanted": 0}, "0 wanted machines"),
        ({"gap_seconds": "600"}, "gap_seconds and data must be whole numbers"),
        ({"gap_seconds": 0}, "gap_seconds is 0"),
        ({"start": "noon", "market": str(MARKET)}, "noon"),
    ],
    ids=str,
)
def test_the_line_about_a_wrong_trace_names_its_fault(
    metadata: dict[str, object], message: str, tmp_path: Path
) -> None:
    report = ingest(
        PriceStore(tmp_path / "prices"),
        trace(tmp_path / NAME, **{"start": "2023-02-15", **metadata}),
    )
    assert report.failure is not None
    assert message in report.failure
    assert "SpotPriceHistory" not in report.failure


def test_lives_become_spans_that_end_in_an_eviction_or_are_censored(tmp_path: Path) -> None:
    table = tmp_path / "lives.csv"
    table.write_text(
        "cloud,zone,gpu,gpu_count,start,end,lifetime_h,preempted\n"
        "aws,us-east-1a,v100,1,2020-03-15 10:00:00+00:00,2020-03-15 12:00:00+00:00,2.0,1\n"
        "aws,us-east-1a,v100,1,2020-03-15 10:00:00+00:00,2020-03-15 13:00:00+00:00,3.0,0\n"
        "aws,us-east-1a,v100,1,2020-03-15 10:00:00+00:00,2020-03-15 13:00:00+00:00,3.0,maybe\n"
    )
    store = PriceStore(tmp_path / "prices")
    report = ingest(store, table)
    assert [str(row) for row in report.bad] == ["line 4: preempted is 'maybe', not 0 or 1"]
    assert [
        (span.ended, (span.until - span.since) / HOUR) for span in store.facts(AVAILABILITY)
    ] == [
        ("evicted", 2.0),
        ("returned", 3.0),
    ]
    assert {span.market for span in store.facts(AVAILABILITY)} == {MARKET}


def test_what_was_observed_survives_the_loss_of_the_manifest(tmp_path: Path) -> None:
    span = AvailabilitySpan(MARKET, START, START, 0, 4, "refused", "run 1 of job")
    store = PriceStore(tmp_path)
    store.commit(FetchedRows(availability=(span,)))
    (tmp_path / "manifest.json").unlink()
    assert PriceStore(tmp_path).facts(AVAILABILITY) == [span]
