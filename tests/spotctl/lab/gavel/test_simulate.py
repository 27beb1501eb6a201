"""`spotctl lab gavel simulate` from its entry point, and the files it reads."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import Ended, spotctl

KEYS = [
    "average_jct_seconds",
    "makespan_seconds",
    "utilization",
    "cost_usd",
    "slo_violations",
    "jobs",
    "wall_seconds",
]
HEADER = "job_type,num_steps_arg,total_steps,scale_factor,priority_weight,slo,arrival_time_s"
CLUSTER = ("--cluster", "v100=2,k80=4")
POLICY = ("--policy", "max-min-fairness")


def written(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def simulated(table: Path, *words: str | Path) -> Ended:
    return spotctl("lab", "gavel", "simulate", "--throughputs", table, *words)


def test_json_of_a_trace(table: Path, tmp_path: Path) -> None:
    trace = written(tmp_path, "small,-n,14400,1,1,-1.000000,0", "small,-n,10800,2,1,-1.000000,3600")
    ended = simulated(table, "--trace", trace, *CLUSTER, *POLICY, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert list(ended.json) == KEYS
    assert ended.json["wall_seconds"] > 0
    found = {key: ended.json[key] for key in KEYS[:-1]}
    assert found == {
        "average_jct_seconds": pytest.approx((3600 + 1800) / 2),
        "makespan_seconds": pytest.approx(5400),
        "utilization": pytest.approx((3600 + 2 * 1800) / (6 * 5400)),
        "cost_usd": None,
        "slo_violations": None,
        "jobs": 2,
    }


def test_prices_deadlines_and_a_file_for_each_job(table: Path, tmp_path: Path) -> None:
    trace = written(tmp_path, *["small,-n,14400,1,1,0,0"] * 3)
    prices, out = ("--prices", "k80=0.5,v100=3,a100=9"), tmp_path / "out" / "of it"
    ended = simulated(
        table,
        "--trace",
        trace,
        "--cluster",
        "v100=1",
        *POLICY,
        *prices,
        "--slo",
        "1.2",
        "--out",
        out,
    )
    assert ended.code == 0, ended.err
    figures = dict(line.rsplit("  ", 1) for line in ended.out.splitlines())
    assert {name.strip(): figure.strip() for name, figure in figures.items()}[
        "deadlines missed"
    ] == "3"
    assert "$9.00" in ended.out
    rows = list(csv.DictReader((out / "jobs.csv").read_text().splitlines()))
    assert [row["slo_met"] for row in rows] == ["False"] * 3
    assert sum(float(row["cost_usd"]) for row in rows) == pytest.approx(9)
    assert float(rows[0]["v100_seconds"]) == 3600
    for name in ("jct_cdf.png", "jct_by_load.png", "allocation.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")


def test_generated_jobs_are_the_same_for_a_seed_and_a_policy_that_looks_is_faster(
    table: Path,
) -> None:
    words = (
        "--arrivals",
        "poisson:3000",
        "--jobs",
        "20:40",
        "--seed",
        "3",
        *CLUSTER,
        *POLICY,
        "--json",
    )
    first, again = (simulated(table, *words).json for _ in range(2))
    assert {**first, "wall_seconds": 0} == {**again, "wall_seconds": 0}
    assert first["jobs"] == 20
    blind = simulated(table, *words, "--agnostic").json
    assert first["average_jct_seconds"] < blind["average_jct_seconds"]


def test_sharing_workers_takes_effect(table: Path, tmp_path: Path) -> None:
    trace = written(tmp_path, *["small,-n,14400,1,1,-1,0"] * 4)
    words = ("--trace", trace, "--cluster", "v100=1", "--policy", "makespan", "--json")
    alone, shared = simulated(table, *words).json, simulated(table, *words, "--space-sharing").json
    assert alone["makespan_seconds"] == pytest.approx(4 * 3600)
    # Two at 0.8 of their throughput each.
    assert shared["makespan_seconds"] == pytest.approx(4 * 3600 / 1.6, rel=0.05)


def test_estimated_pairs_share_nearly_as_well_as_measured_ones(shared_data: Path) -> None:
    table = shared_data / "gavel" / "simulation_throughputs.json.gz"
    words = ("--arrivals", "poisson:900", "--jobs", "0:30", *CLUSTER, *POLICY, "--json")
    alone = simulated(table, *words).json["average_jct_seconds"]
    measured, estimated = (
        simulated(table, *words, "--space-sharing", *more).json["average_jct_seconds"]
        for more in ((), ("--measured-pairs", "8"))
    )
    assert measured < estimated < alone
    assert estimated - measured < 0.5 * (alone - measured)


def test_a_round_and_a_checkpoint_are_as_long_as_asked(table: Path, tmp_path: Path) -> None:
    trace = written(tmp_path, *["small,-n,480,1,1,-1,0"] * 2)
    words = ("--trace", trace, "--cluster", "v100=1", *POLICY, "--json")
    assert simulated(table, *words, "--round", "60").json["average_jct_seconds"] == 210
    moved = simulated(table, *words, "--round", "60", "--checkpoint-seconds", "6").json
    assert moved["makespan_seconds"] == pytest.approx(4 * 60 + 2 * (6 + 6))


def test_a_queue_is_played_on_request(table: Path, tmp_path: Path, approved: Approved) -> None:
    """Short jobs go first, and nobody moves where a checkpoint takes longer than moving saves."""
    trace = written(
        tmp_path, *(f"small,-n,{steps},1,1,-1,0" for steps in (144000, 144000, 2400, 2400))
    )
    words = ("--trace", trace, "--cluster", "v100=2", "--checkpoint-seconds", "60", "--json")
    default = simulated(table, *words, "--policy", "mean-completion")
    assert default.json["average_jct_seconds"] == pytest.approx(
        (600 + 600 + 36720 + 36720) / 4, rel=0.01
    )
    launched, published = (
        simulated(table, *words, "--policy", f"{mode}max-min-fairness") for mode in ("queue:", "")
    )
    # As published they change places in every round, and each change costs a minute.
    assert launched.json["makespan_seconds"] < published.json["makespan_seconds"]
    approved(simulated(table, *words, "--policy", "queue:fifo", "--agnostic"))
    approved(simulated(table, *words, "--policy", "queue:allox"))


def test_jobs_of_one_seed_of_several_and_what_is_left_out(
    table: Path, tmp_path: Path, approved: Approved
) -> None:
    rows = (
        "0,small,400,9.0,1",
        "1,small,800,7.0,1",
        "0,small,400,0.0,1",
        "0,huge,4,0.0,16",
        "0,huge,4,0.0,16",
    )
    trace = written(tmp_path, *rows, header="seed,job_type,total_steps,arrival_time_s,scale_factor")
    ended = simulated(table, "--trace", trace, *CLUSTER, *POLICY, "--json")
    assert ended.json["jobs"] == 2
    approved(ended)
    ended = simulated(table, "--trace", trace, *CLUSTER, *POLICY, "--seed", "1", "--json")
    assert ended.json["average_jct_seconds"] == 200
    ended = simulated(table, "--trace", trace, *CLUSTER, *POLICY, "--seed", "7")
    approved(ended)


ON_BUDGET = ("--policy", "makespan-within-budget", "--prices", "v100=3,k80=0.5", *CLUSTER, "--json")


def test_a_batch_on_a_budget_is_as_fast_as_its_dollars_allow(
    table: Path, tmp_path: Path, approved: Approved
) -> None:
    # On a k80 each job takes 4 h and $2, on a v100 1 h and $3.
    words = ("--trace", written(tmp_path, *["small,-n,14400,1,1,-1,0"] * 4), *ON_BUDGET, "--budget")
    found = [simulated(table, *words, budget).json for budget in ("8.01", "10", "100")]
    assert found[0]["cost_usd"] == pytest.approx(8)
    assert found[0]["makespan_seconds"] == pytest.approx(4 * 3600)
    # A round of the whole cluster is $0.80; so much may be left over.
    assert 9.2 * 0.99 < found[1]["cost_usd"] <= 10
    spans = [one["makespan_seconds"] for one in found]
    assert spans[0] > spans[1] > spans[2]
    ended = simulated(table, *words, "7")
    approved(ended)


def test_jobs_that_a_budget_did_not_reckon_with_are_done_for_the_least(
    table: Path, tmp_path: Path, approved: Approved
) -> None:
    trace = written(tmp_path, *["small,-n,14400,1,1,-1,0"] * 2, *["small,-n,14400,1,1,-1,7200"] * 2)
    ended = simulated(table, "--trace", trace, *ON_BUDGET, "--budget", "6")
    assert 8 <= ended.json["cost_usd"] < 9.2
    approved(ended)


@pytest.mark.parametrize(
    "words",
    [
        ("--policy", "makespan-within-budget"),
        ("--policy", "makespan", "--budget", "5"),
        ("--policy", "makespan-within-budget", "--budget", "0"),
        ("--policy", "makespan-within-budget", "--budget", "nan"),
        ("--policy", "makespan-within-budget", "--budget", "5"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(
    table: Path, words: tuple[str, ...], approved: Approved
) -> None:
    ended = simulated(table, *GENERATED, *CLUSTER, *words)
    approved(ended)


GENERATED = ("--arrivals", "poisson:900", "--jobs", "0:5")


@pytest.mark.parametrize(
    "words",
    [
        (*CLUSTER, *POLICY),
        (*GENERATED, "--trace", "x.csv", *CLUSTER, *POLICY),
        ("--trace", "none.csv", *CLUSTER, *POLICY),
        ("--arrivals", "poisson:900", *CLUSTER, *POLICY),
        ("--arrivals", "poisson:soon", "--jobs", "5", *CLUSTER, *POLICY),
        ("--arrivals", "weibull:3", "--jobs", "5", *CLUSTER, *POLICY),
        ("--arrivals", "poisson:-1", "--jobs", "5", *CLUSTER, *POLICY),
        ("--arrivals", "poisson:9", "--jobs", "5:5", *CLUSTER, *POLICY),
        ("--arrivals", "poisson:9", "--jobs", "9999999", *CLUSTER, *POLICY),
        ("--arrivals", "poisson:1e300", "--jobs", "5", *CLUSTER, *POLICY),
        ("--arrivals", "poisson:9", "--jobs", "-3:5", *CLUSTER, *POLICY),
        ("--arrivals", "poisson:9", "--jobs", "many", *CLUSTER, *POLICY),
        (*GENERATED, "--scale", "huge", *CLUSTER, *POLICY),
        (*GENERATED, "--scale", "multiple", *CLUSTER, *POLICY),
        (*GENERATED, "--cluster", "v100", *POLICY),
        (*GENERATED, "--cluster", "v100=2,v100=3", *POLICY),
        (*GENERATED, "--cluster", "v100=1.5", *POLICY),
        (*GENERATED, "--cluster", "v100=0", *POLICY),
        (*GENERATED, "--cluster", "v100=-1", *POLICY),
        (*GENERATED, "--cluster", "a100=4", *POLICY),
        (*GENERATED, *CLUSTER, "--policy", "whim"),
        (*GENERATED, *CLUSTER, *POLICY, "--prices", "v100=3"),
        (*GENERATED, *CLUSTER, *POLICY, "--prices", "v100=3,k80=cheap"),
        (*GENERATED, *CLUSTER, *POLICY, "--slo", "1.2,late"),
        (*GENERATED, *CLUSTER, *POLICY, "--slo", "0"),
        (*GENERATED, *CLUSTER, *POLICY, "--round", "0"),
        (*GENERATED, *CLUSTER, *POLICY, "--round", "nan"),
        (*GENERATED, *CLUSTER, *POLICY, "--checkpoint-seconds", "360"),
        (*GENERATED, *CLUSTER, "--policy", "fifo", "--space-sharing"),
        (*GENERATED, *CLUSTER, "--policy", "fifo-perf", "--space-sharing"),
        (*GENERATED, *CLUSTER, "--policy", "fifo-perf", "--agnostic"),
        (*GENERATED, *CLUSTER, *POLICY, "--measured-pairs", "2"),
        (*GENERATED, *CLUSTER, *POLICY, "--space-sharing", "--measured-pairs", "2"),
        (*GENERATED, *CLUSTER, *POLICY, "--published", "steps,center"),
        (*GENERATED, *CLUSTER, "--policy", "queue:fifo", "--published", "all"),
        (*GENERATED, *CLUSTER, *POLICY, "--published", "all", "--space-sharing"),
    ],
)
def test_what_cannot_be_simulated_is_one_line_and_code_2(
    table: Path, words: tuple[str, ...], approved: Approved
) -> None:
    ended = simulated(table, *words, "--json")
    approved(ended)
    assert ended.out == ""


def test_a_job_that_would_not_end_is_named(table: Path, tmp_path: Path, approved: Approved) -> None:
    trace = written(tmp_path, "small,-n,10,1,1,-1,0", "small,-n,1e12,1,1,-1,0")
    ended = simulated(table, "--trace", trace, *CLUSTER, *POLICY)
    approved(ended)


def test_recorded_jobs_of_a_production_cluster_can_be_simulated(
    shared_data: Path, approved: Approved
) -> None:
    folder = shared_data / "gavel"
    ended = spotctl(
        "lab", "gavel", "simulate", "--trace", folder / "msr_philly_derived_seeds_0_1.csv.gz", "--jobs", "0:20",
        "--throughputs", folder / "physical_cluster_throughputs.json.gz", "--cluster", "v100=999,p100=999,k80=999",
        "--policy", "max-min-fairness", "--json",
    )  # fmt: skip
    approved(ended)
    assert ended.json["jobs"] == 20


ENTITIES = ("--entities", "research=3,product=1:fifo")


def test_entities_share_the_cluster_by_their_weights(table: Path, tmp_path: Path) -> None:
    """The trace names the owner of some jobs; the others get one at random. An entity without jobs
    takes nothing.
    """
    rows = [
        f"small,-n,{144_000 + number},1,1,-1,0,{'research' if number % 2 else 'product'}"
        for number in range(8)
    ]
    trace = written(tmp_path, *rows, header=f"{HEADER},entity")
    shared = simulated(
        table, "--trace", trace, *CLUSTER, "--policy", "hierarchical", *ENTITIES, "--json"
    ).json
    groups = {group["name"]: group for group in shared["groups"]}
    assert {name: group["jobs"] for name, group in groups.items()} == {"research": 4, "product": 4}
    assert groups["research"]["average_jct_seconds"] < groups["product"]["average_jct_seconds"]
    alone = written(
        tmp_path, *(row.replace("product", "research") for row in rows), header=f"{HEADER},entity"
    )
    ended = simulated(table, "--trace", alone, *CLUSTER, "--policy", "hierarchical", *ENTITIES)
    assert "8 jobs of research" in ended.out
    without = written(tmp_path, *(row.rpartition(",")[0] for row in rows))
    drawn = simulated(
        table, "--trace", without, *CLUSTER, "--policy", "hierarchical", *ENTITIES, "--json"
    ).json
    assert sum(group["jobs"] for group in drawn["groups"]) == 8


def test_jobs_with_a_higher_priority_finish_earlier(table: Path, tmp_path: Path) -> None:
    rows = [
        f"small,-n,{3600 * (1 + number)},1,{1 if number % 3 else 5},-1,0" for number in range(24)
    ]
    found = simulated(table, "--trace", written(tmp_path, *rows), *CLUSTER, *POLICY, "--json").json
    low, high = found["groups"]
    assert (low["name"], high["name"], low["jobs"] + high["jobs"]) == (
        "priority 1",
        "priority 5",
        24,
    )
    assert high["average_jct_seconds"] < low["average_jct_seconds"]
    assert high["finish_time_fairness"] < low["finish_time_fairness"]


def test_weights_of_the_trace_are_reported_by_priority(table: Path, tmp_path: Path) -> None:
    trace = written(
        tmp_path, "small,-n,14400,1,1,-1,0", "small,-n,14400,1,4,-1,0", "small,-n,14400,1,4,-1,0"
    )
    groups = simulated(table, "--trace", trace, *CLUSTER, *POLICY, "--json").json["groups"]
    assert [(group["name"], group["jobs"]) for group in groups] == [
        ("priority 1", 1),
        ("priority 4", 2),
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("--entities", "research=x"),
        ("--entities", "a=1:lottery"),
        ("--entities", "a=1,a=2"),
        ("--entities", "other=1"),
    ],
)
def test_bad_entities_are_refused(
    table: Path, tmp_path: Path, words: tuple[str, str], approved: Approved
) -> None:
    trace = written(tmp_path, "small,-n,14400,1,1,-1,0,research", header=f"{HEADER},entity")
    ended = simulated(table, "--trace", trace, *CLUSTER, "--policy", "hierarchical", *words)
    approved(ended)


@pytest.fixture
def placed(tmp_path: Path) -> Path:
    """A job of two or three workers does four steps a second on one server, and one on several."""
    kinds = {"('wide', 2)": (4.0, 1.0), "('wide', 3)": (4.0, 1.0), "('small', 1)": (2.0, 2.0)}
    path = tmp_path / "placed.json"
    types = ("v100", "v100_unconsolidated")
    rates = {
        name: {kind: {"null": both[at]} for kind, both in kinds.items()}
        for at, name in enumerate(types)
    }
    path.write_text(json.dumps(rates))
    return path


def test_workers_under_two_names_are_the_same_workers(
    placed: Path, tmp_path: Path, approved: Approved
) -> None:
    trace = written(tmp_path, *["wide,-n,3600,2,1,-1,0"] * 4)
    words = ("--trace", trace, "--policy", "max-throughput", "--json")
    both, one = (
        simulated(placed, *words, "--cluster", named)
        for named in ("v100=4,v100_unconsolidated=4", "v100=4")
    )
    # Two jobs at a time on four workers.
    assert (
        both.json["makespan_seconds"]
        == one.json["makespan_seconds"]
        == pytest.approx(1800, rel=0.01)
    )
    assert both.json["utilization"] == pytest.approx(1, rel=0.01)
    apart = simulated(placed, *words, "--cluster", "v100_unconsolidated=4").json
    assert apart["makespan_seconds"] == pytest.approx(7200, rel=0.01)
    approved(simulated(placed, *words, "--cluster", "v100=4,v100_unconsolidated=2"))
    approved(simulated(placed, *words, "--cluster", "v100=4/0"))
    approved(simulated(placed, *words, "--cluster", "v100=4/1.5"))


def test_big_jobs_come_first_onto_a_server_and_the_others_are_spread(
    placed: Path, tmp_path: Path
) -> None:
    """On two servers of three workers, jobs of three and two are each on one; a second of two has a
    worker of each.
    """
    trace = written(
        tmp_path, "wide,-n,1440,2,1,-1,0", "wide,-n,7200,3,1,-1,0", "small,-n,3600,1,1,-1,0"
    )
    words = ("--trace", trace, "--policy", "max-throughput", "--cluster")
    two = simulated(placed, *words, "v100=6/3", "--json").json
    assert two["average_jct_seconds"] == pytest.approx((360 + 1800 + 1800) / 3)
    assert two["spread"] == 0
    out = tmp_path / "out"
    ended = simulated(placed, *words, "v100=6/2", "--out", out)
    assert "spread over servers, of the time of jobs on several workers" in ended.out
    rows = list(csv.DictReader((out / "jobs.csv").read_text().splitlines()))
    assert [float(row["jct_seconds"]) for row in rows] == [360, 7200, 1800]
    assert [float(row["spread_seconds"]) for row in rows] == [0, 7200, 0]
