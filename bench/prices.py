"""The price store with ten million price changes, compared with pandas on CSV files."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from bench.harness import Row, seconds, shown, table, times_faster
from bench.startup import processor_seconds
from pricing_data.catalog import Catalog
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.ingest import ingest
from pricing_data.library import Library
from pricing_data.market import Market
from pricing_data.query import export, query
from pricing_data.series import PriceSeries
from pricing_data.stats import MarketStats, describe
from pricing_data.store import PriceStore
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, SECOND, parse_time

EVENTS, MARKETS, DAYS = 10_000_000, 1_000, 90
MAX_BYTES, MAX_MARKET_SECONDS = 60_000_000, 0.010
MAX_IMPORT_MEGABYTES, MAX_CORRECTION_MEGABYTES = 300, 150
MAX_CORRECTION_SECONDS, MAX_STATS_SECONDS = 1.0, 1.0
_START = parse_time("2026-01-01")


def history(seed: int = 0) -> PriceTable:
    """Random walks of prices on a grid of $0.0001 that change about every 13 minutes, over 90
    days."""
    rng = np.random.default_rng(seed)
    each = EVENTS // MARKETS
    gaps = rng.exponential(DAYS * DAY / SECOND / each, (MARKETS, each)).astype(np.int64) + 1
    times = _START + np.cumsum(gaps, axis=1) * SECOND
    base = rng.integers(200, 40_000, (MARKETS, 1))
    prices = np.abs(base + np.cumsum(rng.integers(-3, 4, (MARKETS, each)), axis=1)) + 1
    names = tuple(
        Market("aws", "us-east-1", f"us-east-1{'abcdef'[i % 6]}", f"t{i // 6}.xlarge")
        for i in range(MARKETS)
    )
    codes = np.repeat(np.arange(MARKETS, dtype=np.int64), each)
    return PriceTable.of(
        PriceBatch(names, codes, times.ravel(), (prices * 100_000).ravel().astype(np.int64))
    )


def run() -> str:
    """Measures everything and returns the section."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "history.csv"
        generated = history()
        export(generated, source)
        return table(
            f"Price store, {EVENTS:,} price changes of {MARKETS:,} markets over {DAYS} days",
            f"Compared with pandas {pd.__version__} on CSV: `read_csv`, typed, without duplicates, "
            "sorted, written"
            " back; then read again for each query. Both start from the same plain CSV file of"
            f" {source.stat().st_size / 1e6:,.0f} MB.",
            _rows(
                PriceStore(Path(folder) / "home" / "prices"),
                source,
                Path(folder) / "pandas.csv",
                generated.markets[MARKETS // 2],
            ),
        )


def _rows(store: PriceStore, source: Path, plain: Path, market: Market) -> list[Row]:
    rows = [
        _against(
            "import", lambda: _import(store, source), lambda: _pandas_import(source, plain), runs=1
        )
    ]
    rows.append(
        _against("import of the same file again", lambda: _import(store, source), None, runs=1)
    )
    with tempfile.TemporaryDirectory() as folder:
        megabytes = _megabytes(source, folder)
    rows.append(Row("memory of the import", f"{megabytes} MB", f"limit {MAX_IMPORT_MEGABYTES} MB"))
    rows += _correction_rows(store, market)
    store.compact()
    events, size = store.size()
    assert events == EVENTS
    rows.append(
        Row(
            "size on disk",
            f"{size / 1e6:.1f} MB, {size / events:.2f} bytes per event",
            f"{plain.stat().st_size / 1e6:,.0f} MB; limit {MAX_BYTES / 1e6:.0f} MB",
            f"{plain.stat().st_size / size:.3g}x",
        )
    )
    ours = seconds(lambda: Library(PriceStore(store.root)).series(market), runs=21)
    theirs = seconds(lambda: _pandas_market(plain, market), runs=1)
    limit = f"{shown(theirs)}; limit {shown(MAX_MARKET_SECONDS)}"
    rows.append(Row(f"one market's {DAYS} days", shown(ours), limit, times_faster(ours, theirs)))
    rows.append(
        _against(
            "statistics of all markets",
            lambda: _statistics(store),
            lambda: _pandas_stats(plain),
            runs=1,
        )
    )
    everything, arrays = seconds(lambda: _statistics(store), runs=3), store.table()
    limit = (
        f"{shown(seconds(lambda: _numpy_stats(arrays), runs=3))}; limit {shown(MAX_STATS_SECONDS)}"
    )
    what = "the same again, against plain numpy on arrays in memory"
    rows.append(Row(what, shown(everything), limit, times_faster(everything, MAX_STATS_SECONDS)))
    program = str(Path(sys.executable).with_name("spotctl"))
    command = [program, "--home", str(store.root.parent), "lab", "prices", "ls", "--stats"]
    what = "processor time of `spotctl lab prices ls --stats`"
    from_prices = min(processor_seconds(command) for _ in range(3))
    rows.append(Row(f"{what} from all prices, as with `--last`", shown(from_prices), "-"))
    kept = seconds(Library(store).keep_statistics, runs=1)
    rows.append(Row("statistics stored at the end of an import", shown(kept), "-"))
    used = min(processor_seconds(command) for _ in range(3))
    limit = f"{shown(from_prices)}; limit {shown(MAX_STATS_SECONDS)}"
    rows.append(Row(f"{what} after that", shown(used), limit, times_faster(used, from_prices)))
    rows.append(_against("mean and maximum by SQL", lambda: _sql(store), None, runs=3))
    return rows


def _correction_rows(store: PriceStore, market: Market) -> list[Row]:
    """Two corrections, because only a fresh process shows how much memory one takes."""
    corrected = seconds(lambda: _correct(store, market), runs=1)
    megabytes = _megabytes(_row_file(store, market), str(store.root))
    return [
        Row("one price corrected", shown(corrected), f"limit {shown(MAX_CORRECTION_SECONDS)}"),
        Row("memory of the correction", f"{megabytes} MB", f"limit {MAX_CORRECTION_MEGABYTES} MB"),
    ]


def _row_file(store: PriceStore, market: Market) -> Path:
    """A file with a higher price for one event."""
    series, path = Library(store).series(market), store.root.with_name("correction.csv")
    export(
        PriceTable.of(
            PriceBatch.of([PriceEvent(market, int(series.times[200]), int(series.prices[200]) * 2)])
        ),
        path,
    )
    return path


def _against(
    what: str, ours: Callable[[], object], peer: Callable[[], object] | None, runs: int
) -> Row:
    taken = seconds(ours, runs)
    if peer is None:
        return Row(what, shown(taken), "-")
    peer_seconds = seconds(peer, runs)
    return Row(what, shown(taken), shown(peer_seconds), times_faster(taken, peer_seconds))


def _import(store: PriceStore, source: Path) -> None:
    report = ingest(store, source)
    assert report.rows == EVENTS
    assert not report.skipped
    store.compact()


_MEASURED_IMPORT = """
import re, sys
from pathlib import Path
from pricing_data.ingest import ingest
from pricing_data.store import PriceStore

store = PriceStore(Path(sys.argv[2]))
ingest(store, Path(sys.argv[1]))
store.compact()
# Not by getrusage, which begins with the memory of the process that started this one.
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


def _megabytes(source: Path, folder: str) -> int:
    """The most memory that a process holds while it imports a file."""
    command = [sys.executable, "-c", _MEASURED_IMPORT, str(source), folder]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _correct(store: PriceStore, market: Market) -> None:
    series = Library(store).series(market)
    higher = PriceEvent(market, int(series.times[100]), int(series.prices[100]) + 100_000)
    assert store.commit(FetchedRows(prices=PriceBatch.of([higher]))).conflicts == 1


def _statistics(store: PriceStore) -> list[MarketStats]:
    return [describe(series, Catalog()) for series in store.table()]


def _numpy_stats(table: PriceTable) -> list[object]:
    """The figures by their definitions, without reading or checking anything."""
    figures: list[object] = []
    for start, end in pairwise(table.starts.tolist()):
        times, prices = table.times[start:end], table.prices[start:end]
        held, order = np.diff(times), np.argsort(prices[:-1])
        spent = np.cumsum(held[order])
        median = prices[order[np.searchsorted(spent, spent[-1] / 2)]]
        high = prices > 2 * median
        spikes, changes = np.count_nonzero(high[1:] & ~high[:-1]), np.count_nonzero(np.diff(prices))
        mean = np.average(prices[:-1], weights=held)
        outliers = np.count_nonzero(prices > 20 * median)
        figures.append((mean, median, prices.min(), prices.max(), spikes, changes, outliers))
    return figures


def _sql(store: PriceStore) -> object:
    sql = "select market, avg(usd_per_hour), max(usd_per_hour) from prices group by 1"
    return store.over_segments(lambda paths, corrected: query(paths, corrected, sql))


def _pandas_import(source: Path, plain: Path) -> None:
    keys = ["cloud", "region", "zone", "instance_type", "product"]
    frame = pd.read_csv(source, parse_dates=["timestamp"])
    frame.drop_duplicates().sort_values([*keys, "timestamp"]).to_csv(plain, index=False)


def _pandas_market(plain: Path, market: Market) -> PriceSeries:
    frame = pd.read_csv(plain, parse_dates=["timestamp"])
    rows = frame[(frame["zone"] == market.zone) & (frame["instance_type"] == market.instance_type)]
    times = (
        rows["timestamp"].dt.tz_convert(None).to_numpy().astype("datetime64[us]").astype(np.int64)
    )
    return PriceSeries(
        market, times, np.round(rows["spot_price"].to_numpy() * 1e9).astype(np.int64)
    )


def _pandas_stats(plain: Path) -> object:
    frame = pd.read_csv(plain, parse_dates=["timestamp"])
    groups = frame.groupby(["cloud", "region", "zone", "instance_type", "product"])
    held = -groups["timestamp"].diff(-1).dt.total_seconds()
    frame["weighted"], frame["held"] = frame["spot_price"] * held, held
    frame["moved"] = groups["spot_price"].diff().ne(0)
    return groups.agg(
        {
            "spot_price": ["count", "min", "max", "median"],
            "weighted": "sum",
            "held": "sum",
            "moved": "sum",
        }
    )
