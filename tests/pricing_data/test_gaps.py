from __future__ import annotations

from pathlib import Path

import numpy as np

from pricing_data.fetched_rows import PriceBatch
from pricing_data.gaps import find_gaps
from pricing_data.market import Market
from pricing_data.sources.files import read
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, HOUR, format_time
from tests.pricing_data.histories import START


def daily(silent: dict[int, tuple[int, int]], markets: int = 4, days: int = 30, ends: int | None = None) -> PriceTable:
    """Markets that are seen once a day, except on some days."""
    named = tuple(Market("aws", "us-east-1", "-", f"t{number}.large") for number in range(markets))
    rows = [
        (code, START + day * DAY + code * HOUR)
        for code in range(markets)
        for day in range(days)
        if not silent.get(code, (0, 0))[0] < day < silent.get(code, (0, 0))[1]
        if not (code == 0 and ends is not None and day > ends)
    ]
    codes, times = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return PriceTable.of(PriceBatch(named, codes, times, np.full(len(rows), 5, dtype=np.int64)))


def test_a_market_seen_daily_has_no_gaps() -> None:
    report = find_gaps(daily({}), START + 30 * DAY)
    assert (report.seams, report.gaps, report.stale) == ((), (), ())


def test_one_silent_market_is_a_gap_of_its_own() -> None:
    report = find_gaps(daily({1: (10, 13)}), START + 30 * DAY)
    assert [(str(gap.market), gap.start, gap.end) for gap in report.gaps] == [
        ("aws/us-east-1/-/t1.large", START + 10 * DAY + HOUR, START + 13 * DAY + HOUR)
    ]
    assert report.seams == ()


def test_a_silence_of_half_a_region_is_a_seam() -> None:
    report = find_gaps(daily({0: (10, 13), 2: (10, 14), 3: (20, 23)}), START + 30 * DAY)
    seam = report.seams[0]
    assert len(report.seams) == 1
    assert (seam.start, seam.end, seam.silent, seam.markets) == (START + 10 * DAY + 2 * HOUR, START + 13 * DAY, 2, 4)
    assert len(report.gaps) == 3


def test_a_market_that_stopped_is_stale() -> None:
    report = find_gaps(daily({}, ends=20), START + 30 * DAY)
    assert [(str(one.market), one.last) for one in report.stale] == [("aws/us-east-1/-/t0.large", START + 20 * DAY)]


def test_staleness_is_measured_against_now() -> None:
    assert len(find_gaps(daily({}), START + 40 * DAY).stale) == 4


def test_a_market_recorded_only_on_changes_may_be_silent() -> None:
    monthly = np.arange(12, dtype=np.int64) * 30 * DAY + START
    batch = PriceBatch((Market("gcp", "us-east1", "-", "n1"),), np.zeros(12, dtype=np.int64), monthly, monthly)
    assert find_gaps(PriceTable.of(batch), START).gaps == ()


def test_the_seam_in_the_2020_file_is_found(shared_data: Path) -> None:
    path = shared_data / "prices" / "aws_sa-east-1_2019-12_2020-06.csv.gz"
    report = find_gaps(PriceTable.of(PriceBatch.joined(portion.fetched.prices for portion in read(path))), START)
    assert [(format_time(seam.start)[:10], format_time(seam.end)[:10]) for seam in report.seams] == [
        ("2020-03-29", "2020-03-31")
    ]
