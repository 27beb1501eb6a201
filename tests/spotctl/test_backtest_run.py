"""`spotctl backtest run` from its entry point, over prices that the test generates."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from pricing_data.export import export
from pricing_data.store.table import PriceTable
from tests.bidbrain.backtest.worlds import restless
from tests.spotctl.cli import spotctl

ON_DEMAND = """asof,region,instance_type,on_demand_price
2025-12-01,us-east-1,m4.4xlarge,0.000001
2025-12-01,us-east-1,c4.2xlarge,0.000001
2025-12-01,us-east-1,c4.xlarge,0.0000005
"""
SCENARIO = """
prices: [history.csv]
on_demand: {file: list.csv, asof: 2025-12-01}
train: [2026-01-01T00:00:00Z, 2026-01-05T00:00:00Z]
test: [2026-01-05T00:00:00Z, 2026-01-09T00:00:00Z]
job: {baseline: {type: c4.2xlarge, machines: 4}, hours: [2]}
markets: {types: ["m4.*"]}
reliable: {type: c4.xlarge, machines: 1}
max_vcpus: 64
starts: 5
schemes: [on-demand, standard+agileml, proteus, bound]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export(PriceTable.merged([table_of(seed, zone) for seed, zone in ((1, "a"), (2, "b"))]), tmp_path / "history.csv")
    (tmp_path / "list.csv").write_text(ON_DEMAND)
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    return tmp_path


def table_of(seed: int, zone: str) -> PriceTable:
    from pricing_data.harvest import PriceBatch, PriceEvent
    from pricing_data.market import Market

    known = restless(seed, 24 * 9)
    market = Market("aws", "us-east-1", f"us-east-1{zone}", "m4.4xlarge")
    events = zip(known.times.tolist(), known.prices.tolist(), strict=True)
    return PriceTable.of(PriceBatch.of(PriceEvent(market, time, price) for time, price in events))


def test_it_prints_a_table_and_writes_jobs_and_plots(folder: Path) -> None:
    ended = spotctl("backtest", "run", folder / "scenario.yaml", "--out", folder / "out", "--workers", "2")
    assert ended.code == 0, ended.err
    assert [line.split()[0] for line in ended.out.splitlines()[1:]] == [
        "on-demand",
        "standard+agileml",
        "proteus",
        "bound",
    ]
    with (folder / "out" / "jobs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * 2 * 5
    assert {row["zone"] for row in rows} == {"us-east-1a", "us-east-1b"}
    for name in ("cost_and_runtime_2h.png", "machine_hours_2h.png"):
        assert (folder / "out" / name).read_bytes().startswith(b"\x89PNG")


def test_json_has_the_documented_keys_and_repeats_itself(folder: Path) -> None:
    one, again = (
        spotctl("backtest", "run", folder / "scenario.yaml", "--workers", "1", "--json").json for _ in range(2)
    )
    assert one["results"] == again["results"]
    assert one["wall_seconds"] > 0
    keys = {"scheme", "hours", "jobs", "cost_pct", "cost_p50", "cost_p95", "runtime_ratio", "evictions_per_job"}
    assert all({*keys, "free_pct", "unfinished"} <= set(row) for row in one["results"])
    on_demand = next(row for row in one["results"] if row["scheme"] == "on-demand")
    assert on_demand["cost_pct"] == pytest.approx(100 * (2 + 1 / 12) / 2)
    assert on_demand["jobs"] == 10


def test_markets_may_come_from_the_store(folder: Path) -> None:
    assert spotctl("prices", "import", folder / "history.csv").code == 0
    stored = SCENARIO.replace("prices: [history.csv]", "store: {markets: 'aws/us-east-1/*/m4.*'}")
    (folder / "scenario.yaml").write_text(stored)
    assert spotctl("backtest", "run", folder / "scenario.yaml", "--workers", "1", "--json").code == 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_vcpus: 64", "max_vcpu: 64", "max_vcpu: Extra inputs are not permitted (and 1 more)"),
        ("machines: 4", "machines: 0", "job.baseline.machines: Input should be greater than 0"),
        ("starts: 5", "starts: many", "starts: Input should be a valid integer"),
        ("2026-01-05T00:00:00Z]", "whenever]", "train.1"),
        ("test: [2026-01-05", "test: [2026-01-03", "train ends at 2026-01-05T00:00:00Z, after test begins"),
        ("2026-01-09T00:00:00Z", "2026-03-09T00:00:00Z", "does not cover the test"),
        ("[on-demand,", "[magic,", "schemes: 'magic'"),
        ("m4.*", "x9.*", "no history of a type like x9.*"),
        ("hours: [2]", "hours: [90]", "three times 90 hours do not fit"),
        ("c4.2xlarge", "c9.2xlarge", "c9.2xlarge"),
        ("history.csv", "nothing.csv", "No such file"),
        ("prices: [history.csv]", "", "give either prices (files) or store (markets)"),
        ("max_vcpus: 64", "billing: monthly\nmax_vcpus: 64", "billing rule 'monthly' is none of"),
        ("max_vcpus: 64", "evictions: magic\nmax_vcpus: 64", "evictions: Input should be 'price'"),
        ("job:", "job: [", "is not YAML"),
    ],
)
def test_a_scenario_that_cannot_be_replayed_is_one_line_and_exit_code_2(
    folder: Path, old: str, new: str, message: str
) -> None:
    assert old in SCENARIO
    (folder / "scenario.yaml").write_text(SCENARIO.replace(old, new, 1))
    ended = spotctl("backtest", "run", folder / "scenario.yaml", "--workers", "1")
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.error


def test_the_2016_scenario_gives_the_independent_figures(shared_data: Path, tmp_path: Path) -> None:
    """Fewer starts than the example has, so the tolerance is that of the evaluation plus that of the draw."""
    example = Path("examples/backtest_2016.yaml").read_text().replace("starts: 200", "starts: 30")
    (tmp_path / "scenario.yaml").write_text(example.replace("../shared/data", str(shared_data)))
    found = spotctl("backtest", "run", tmp_path / "scenario.yaml", "--json").json["results"]
    figures = {(row["scheme"], row["hours"]): (row["cost_pct"], row["runtime_ratio"]) for row in found}
    expected = {
        ("standard+checkpoint", 2): (30.8, 1.24),
        ("standard+checkpoint", 20): (33.5, 1.20),
        ("standard+agileml", 2): (28.0, 1.04),
        ("standard+agileml", 20): (29.8, 1.00),
        ("tierml", 2): (29.8, 1.04),
        ("tierml", 20): (30.5, 1.00),
        ("proteus", 2): (25.0, 0.79),
        ("proteus", 20): (24.4, 0.73),
    }
    for key, (cost, runtime) in expected.items():
        assert figures[key][0] == pytest.approx(cost, abs=2.5), key
        assert figures[key][1] == pytest.approx(runtime, abs=0.03), key
