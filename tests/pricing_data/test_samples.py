from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from bench.price_sample.__main__ import main
from bench.price_sample.describe import (
    DescribedMarket,
    beta,
    crossings_per_hour,
    episodes_above,
    observations,
    shared_share,
    statistics,
)
from bench.price_sample.synthetic import (
    FROZEN,
    LIVELY,
    NERVOUS,
    PRICE_STEP,
    START,
    WILD,
    Listing,
    SampleParameters,
    Temper,
    generate,
    sample_parameters,
    shipped_sample,
    stormy_markets,
)
from pricing_data.market import Market
from pricing_data.samples import bundled_catalog, bundled_prices
from pricing_data.series import PriceSeries
from pricing_data.store.segments import SegmentFile
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, HOUR, MINUTE, NANOS_PER_DOLLAR, SECOND, parse_time

ROOT = Path(__file__).parents[2]
DECISION = ROOT / "docs/decisions/0002-synthetic-sample.md"
ON_DEMAND = NANOS_PER_DOLLAR // 2


@pytest.fixture(scope="module")
def shipped() -> list[PriceSeries]:
    with SegmentFile(bundled_prices()) as segment:
        return list(segment.read())


@pytest.fixture(scope="module")
def observed(shipped: list[PriceSeries]) -> list[DescribedMarket]:
    table = PriceTable.merged(
        PriceTable((series.market,), np.array([0, len(series)]), series.times, series.prices)
        for series in shipped
    )
    return observations(table.batch(), bundled_catalog())


@pytest.fixture(scope="module")
def era(observed: list[DescribedMarket]) -> list[DescribedMarket]:
    """The markets that are compared with 2016: those that move, without those for
    demonstrations."""
    fitted = [each for each in observed if each.series.market not in stormy_markets()]
    return [each for each in fitted if each.stats.changes_per_day > 1]


class TestShippedFile:
    def test_it_is_small_and_written_as_the_store_reads_it(self) -> None:
        assert bundled_prices().stat().st_size < 400_000
        file = pq.ParquetFile(bundled_prices())
        assert file.schema_arrow.remove_metadata() == pa.schema(
            [
                ("market", pa.dictionary(pa.int32(), pa.string())),
                ("time", pa.int64()),
                ("price", pa.int64()),
            ]
        )
        for group in range(file.num_row_groups):
            market, time, price = (file.metadata.row_group(group).column(i) for i in range(3))
            assert {column.compression for column in (market, time, price)} == {"ZSTD"}
            assert "DELTA_BINARY_PACKED" in time.encodings
            assert "RLE_DICTIONARY" in market.encodings
            assert "RLE_DICTIONARY" in price.encodings

    def test_rows_are_sorted_by_market_and_strictly_by_time(self) -> None:
        rows = pq.read_table(bundled_prices()).to_pydict()
        keys = list(zip(rows["market"], rows["time"], strict=True))
        assert all(a < b for a, b in pairwise(keys))

    def test_its_seed_reproduces_it(self) -> None:
        rows = pq.read_table(bundled_prices())
        again = PriceTable.of(shipped_sample())
        names = [str(market) for market in again.markets]
        assert rows["market"].to_pylist() == [names[code] for code in again.codes()]
        assert np.array_equal(rows["time"].to_numpy(), again.times)
        assert np.array_equal(rows["price"].to_numpy(), again.prices)

    def test_every_market_is_labeled_synthetic(self, shipped: list[PriceSeries]) -> None:
        assert all(series.market.is_synthetic for series in shipped)

    def test_there_are_two_regions_of_two_zones(self, shipped: list[PriceSeries]) -> None:
        zones = defaultdict(set)
        for series in shipped:
            zones[series.market.region].add(series.market.zone)
        assert zones == {
            "sim-east": {"sim-east-a", "sim-east-b"},
            "sim-west": {"sim-west-a", "sim-west-b"},
        }
        assert 24 <= len(shipped) <= 32

    def test_every_market_spans_the_whole_period(self, shipped: list[PriceSeries]) -> None:
        for series in shipped:
            assert series.first == parse_time("2026-01-01T00:00:00Z")
            assert series.last == parse_time("2026-01-31T00:00:00Z")

    def test_every_market_has_an_event_on_each_day(self, shipped: list[PriceSeries]) -> None:
        for series in shipped:
            assert set(range(30)) <= set(((series.times - START) // DAY).tolist())
            assert np.diff(series.times).max() <= DAY

    def test_prices_are_steps_of_a_price_list_and_at_most_ten_times_on_demand(
        self, observed: list[DescribedMarket]
    ) -> None:
        for each in observed:
            assert np.all(each.series.prices % PRICE_STEP == 0)
            assert each.stats.highest <= 10 * each.on_demand

    def test_every_market_s_machine_and_on_demand_price_are_known(
        self, shipped: list[PriceSeries]
    ) -> None:
        for series in shipped:
            assert bundled_catalog().knows("local", series.market.instance_type)
            assert bundled_catalog().on_demand(series.market).as_of == START


class TestLikeness:
    """The bands are wide enough for another seed, and narrow enough to exclude another kind of
    market.
    """

    def test_some_markets_never_move(self, observed: list[DescribedMarket]) -> None:
        assert sum(each.series.changes == 0 for each in observed) >= 2

    def test_prices_change_as_often(self, era: list[DescribedMarket]) -> None:
        low, median, high = np.quantile(
            [each.stats.changes_per_day for each in era], (0.25, 0.5, 0.75)
        )
        assert 50 < low < 110
        assert 110 < median < 180
        assert 140 < high < 220

    def test_prices_are_as_far_below_on_demand(self, era: list[DescribedMarket]) -> None:
        low, median, high = np.quantile(
            [each.stats.median / each.on_demand for each in era], (0.25, 0.5, 0.75)
        )
        assert 0.09 < low < median < high < 0.22

    def test_spikes_are_as_frequent_as_high_and_as_long(self, era: list[DescribedMarket]) -> None:
        episodes = [
            episode for each in era for episode in episodes_above(each.series, each.on_demand)
        ]
        assert 0.15 < len(episodes) / (30 * len(era)) < 0.4
        assert 1.7 < np.median([episode.height for episode in episodes]) < 3.3
        assert max(episode.height for episode in episodes) == 10
        assert 8 < np.median([episode.length for episode in episodes]) / MINUTE < 30
        assert 0.1 < shared_share(episodes) < 0.35
        spiking = {episode.market for episode in episodes}
        assert 0.2 < len(spiking) / len(era) < 0.5

    def test_bids_just_above_the_price_are_exceeded_as_often(
        self, era: list[DescribedMarket]
    ) -> None:
        assert (
            0.34 < np.mean([beta(each.series, NANOS_PER_DOLLAR // 10_000) for each in era]) < 0.46
        )
        assert 0.09 < np.mean([beta(each.series, NANOS_PER_DOLLAR // 100) for each in era]) < 0.19

    @pytest.mark.parametrize("region", ["sim-east", "sim-west"])
    def test_a_market_of_each_region_evicts_in_every_hour(
        self, region: str, observed: list[DescribedMarket]
    ) -> None:
        """A demonstration lasts an hour, bids the on-demand price, and may start at any time."""
        stormy = [each for each in observed if each.series.market in stormy_markets()]
        (market,) = (each for each in stormy if each.series.market.region == region)
        assert crossings_per_hour(market.series, market.on_demand).min() >= 3

    def test_the_documented_figures_of_the_sample_are_current(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        main(["--describe"])
        decision = DECISION.read_text(encoding="utf-8")
        missing = [line for line in capsys.readouterr().out.splitlines() if line not in decision]
        assert not missing

    def test_the_documented_comparison_is_current(
        self, shared_data: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        main(["--describe", str(shared_data / "prices/aws_us-east-1_2016-02-24_2016-04-05.csv.gz")])
        assert capsys.readouterr().out.strip("\n") in DECISION.read_text(encoding="utf-8")


def parameters(*tempers: Temper, days: int = 4, echo: float = 0.0) -> SampleParameters:
    """Zones of one type, each with its own temper."""
    listings = tuple(
        Listing(
            Market.parse(f"local/sim-east/sim-east-{zone}/c4.xlarge"),
            ON_DEMAND,
            ON_DEMAND / 8,
            temper,
        )
        for zone, temper in zip("abcdef", tempers, strict=False)
    )
    return SampleParameters(listings, days=days, echo=echo)


def generated(given_parameters: SampleParameters, seed: int = 7) -> list[PriceSeries]:
    return list(
        PriceTable.of(generate(given_parameters, np.random.Generator(np.random.PCG64(seed))))
    )


class OnlyUniform:
    """A random generator that only has `random()`."""

    def __init__(self) -> None:
        self._rng = np.random.Generator(np.random.PCG64(3))

    # A number or an array, as numpy's.
    def random(self, size: int | None = None) -> Any:  # noqa: ANN401
        return self._rng.random(size)


class TestGenerator:
    def test_the_same_seed_gives_the_same_events(self) -> None:
        assert generated(parameters(LIVELY, WILD)) == generated(parameters(LIVELY, WILD))

    def test_another_seed_gives_others(self) -> None:
        assert generated(parameters(LIVELY), seed=1) != generated(parameters(LIVELY), seed=2)

    def test_it_uses_no_random_stream_that_may_change_with_numpy(self) -> None:
        batch = generate(
            parameters(NERVOUS, WILD, echo=0.5), cast(np.random.Generator, OnlyUniform())
        )
        assert len(batch) > 0

    def test_a_frozen_market_stays_at_its_floor(self) -> None:
        (series,) = generated(parameters(FROZEN))
        assert set(series.prices.tolist()) == {ON_DEMAND // 8}
        assert len(series) == 2 + 4

    def test_without_spikes_a_quiet_market_stays_below_on_demand(self) -> None:
        (series,) = generated(parameters(replace(LIVELY, jumps_per_day=0.0), days=20))
        assert series.changes > 100
        assert series.prices.max() < ON_DEMAND

    def test_no_price_is_below_the_floor(self) -> None:
        (series,) = generated(parameters(WILD))
        assert series.prices.min() >= ON_DEMAND // 8

    def test_evenness_puts_spikes_at_equal_distances(self) -> None:
        regular = Temper(spikes_per_day=24, spike_minutes=1, spike_spread=0.0, evenness=1.0)
        (series,) = generated(parameters(regular))
        starts = [episode.start for episode in episodes_above(series, ON_DEMAND)]
        assert len(starts) > 24 * 3
        assert set(np.diff(starts).tolist()) == {HOUR}

    def test_echoed_spikes_reach_the_zones_that_have_spikes(self) -> None:
        source = Temper(spikes_per_day=4.0)
        echoing = replace(source, spikes_per_day=1e-9)
        a, b, calm = generated(parameters(source, echoing, FROZEN, days=10, echo=1.0))
        first, second = episodes_above(a, ON_DEMAND), episodes_above(b, ON_DEMAND)
        assert len(first) > 10
        assert shared_share([*first, *second]) > 0.7
        assert not episodes_above(calm, ON_DEMAND)

    def test_without_echo_zones_spike_independently(self) -> None:
        source = Temper(spikes_per_day=2.0)
        a, b = generated(parameters(source, source, days=30, echo=0.0))
        assert shared_share([*episodes_above(a, ON_DEMAND), *episodes_above(b, ON_DEMAND)]) < 0.2

    def test_spikes_that_outlast_the_period_end_with_it(self) -> None:
        endless = Temper(spikes_per_day=24.0, spike_minutes=6000.0)
        (series,) = generated(parameters(endless))
        assert series.last == START + 4 * DAY

    def test_the_plan_takes_its_on_demand_prices_from_the_catalog(self) -> None:
        for listing in sample_parameters(bundled_catalog()).listings:
            assert listing.on_demand == bundled_catalog().on_demand(listing.market).price
            assert 0.1 <= listing.floor / listing.on_demand <= 0.3


events = st.lists(st.tuples(st.integers(1, 90), st.integers(1, 30)), min_size=2, max_size=40)


def series_of(steps: list[tuple[int, int]]) -> PriceSeries:
    times = START + np.cumsum(
        [minutes * MINUTE + 7 * SECOND for minutes, _ in steps], dtype=np.int64
    )
    return PriceSeries(
        Market.parse("local/sim-east/sim-east-a/c4.xlarge"),
        times,
        np.array([p for _, p in steps], dtype=np.int64),
    )


class TestStatistics:
    @given(events, st.integers(0, 10), st.integers(1, 120))
    def test_beta_is_the_share_of_starts_that_see_a_higher_price(
        self, steps: list[tuple[int, int]], delta: int, window_minutes: int
    ) -> None:
        series, window = series_of(steps), window_minutes * MINUTE
        starts = range(series.first, series.last - window, MINUTE)
        if not starts:
            return
        moments = list(zip(series.times.tolist(), series.prices.tolist(), strict=True))
        evicted = sum(
            any(
                start < time <= start + window and price > series.price_at(start) + delta
                for time, price in moments
            )
            for start in starts
        )
        assert beta(series, delta, window) == pytest.approx(evicted / len(starts))

    @given(events, st.integers(1, 30))
    def test_episodes_are_all_the_time_above(
        self, steps: list[tuple[int, int]], limit: int
    ) -> None:
        series = series_of(steps)
        episodes = episodes_above(series, limit)
        assert sum(episode.length for episode in episodes) / SECOND == series.seconds_above(limit)
        for episode in episodes:
            assert series.price_at(episode.start) > limit
            assert series.price_at(episode.start + episode.length) <= limit or (
                episode.start + episode.length == series.last
            )

    def test_crossings_are_counted_in_the_hour_they_happen(self) -> None:
        series = series_of(
            [(1, 1), (30, 9), (5, 1), (5, 9), (5, 12), (70, 1), (59, 1), (60, 9), (20, 9)]
        )
        assert crossings_per_hour(series, 5).tolist() == [2, 0, 0, 1]

    def test_siblings_are_zones_of_one_type_in_one_region(self) -> None:
        def spike(market: str, minute: int) -> list[Any]:
            series = PriceSeries(
                Market.parse(market),
                START + np.array([0, minute, minute + 5, 600], dtype=np.int64) * MINUTE,
                np.array([1, 9, 1, 1], dtype=np.int64),
            )
            return episodes_above(series, 5)

        zone_a = spike("local/sim-east/sim-east-a/c4.xlarge", 100)
        assert shared_share(zone_a + spike("local/sim-east/sim-east-b/c4.xlarge", 109)) == 1.0
        assert shared_share(zone_a + spike("local/sim-east/sim-east-b/c4.xlarge", 111)) == 0.0
        assert shared_share(zone_a + spike("local/sim-east/sim-east-b/c4.2xlarge", 100)) == 0.0
        assert shared_share(zone_a + spike("local/sim-west/sim-west-a/c4.xlarge", 100)) == 0.0

    def test_every_figure_is_given_under_one_name(self, era: list[DescribedMarket]) -> None:
        names = [name for name, _ in statistics(era)]
        assert len(names) == len(set(names))


class TestCommand:
    def test_it_writes_the_shipped_file(self, tmp_path: Path) -> None:
        main([str(tmp_path / "again.parquet")])
        again, shipped = (
            SegmentFile(tmp_path / "again.parquet").read(),
            SegmentFile(bundled_prices()).read(),
        )
        assert list(again) == list(shipped)

    def test_without_a_file_it_prints_its_usage(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as stopped:
            main([])
        assert stopped.value.code == 2
        assert "name one file to write, or pass --describe" in capsys.readouterr().err

    def test_a_file_that_cannot_be_compared_is_reported(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit):
            main(["--describe", str(tmp_path / "absent.csv")])
        assert "absent.csv: cannot be read" in capsys.readouterr().err

    def test_a_file_without_a_moving_market_is_reported(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        header = "timestamp,cloud,region,zone,instance_type,product,spot_price\n"
        (tmp_path / "still.csv").write_text(
            f"{header}2026-01-01T00:00:00Z,aws,us-east-1,us-east-1a,m5.large,,0.03\n"
        )
        with pytest.raises(SystemExit):
            main(["--describe", str(tmp_path / "still.csv")])
        assert "still.csv: no market with a known on-demand price moves" in capsys.readouterr().err


def test_importing_the_samples_imports_no_heavy_library() -> None:
    code = (
        "import sys, pricing_data.samples as samples; samples.bundled_catalog(); "
        "samples.bundled_prices();"
        "sys.exit(', '.join({'pyarrow', 'pandas', 'duckdb', 'scipy'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
