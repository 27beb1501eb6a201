"""`spotctl plan` from its entry point, on the shipped history and on stored ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pricing_data.units import HOUR, format_time, parse_time
from tests.bidbrain.eviction.worlds import START, flat
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.lab.beta.conftest import imported

AT = "2026-01-20T12:00:00Z"
JOB = """
name: {name}
kind: agileml
app: mf
stop: {{ clocks: 2000 }}
resources: {{ clouds: [local], machines: 4..16, reliable: {{ machines: 1 }} }}
throughputs: {{ c4.xlarge: 40 }}
{more}
"""


def job(folder: Path, more: str = "", name: str = "nightly") -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(JOB.format(name=name, more=more))
    return file


def test_json_has_the_keys_of_the_contract_and_adds_up(tmp_path: Path) -> None:
    ended = spotctl("plan", job(tmp_path, "deadline: 12h\nbudget: 25 USD"), "--at", AT, "--json")
    assert ended.code == 0, ended.err
    plan = ended.json
    assert list(plan)[:5] == ["job", "choice", "expected", "on_demand_usd", "rejected"]
    assert plan["job"] == "nightly"
    assert list(plan["expected"])[:3] == ["cost_usd", "hours", "finish_by"]
    for one in plan["choice"]:
        assert list(one)[:5] == ["market", "machines", "bid", "beta", "cost_per_work"]
        assert one["market"].startswith("local/")
        assert one["bid"] >= one["price"] > 0
        assert 0 <= one["beta_low"] <= one["beta"] <= one["beta_high"] <= 1
    assert 4 <= sum(one["machines"] for one in plan["choice"]) <= 16
    expected = plan["expected"]
    assert sum(term["cost_usd"] for term in expected["terms"]) == pytest.approx(
        expected["cost_usd"]
    )
    assert expected["cost_usd_low"] <= expected["cost_usd"] <= expected["cost_usd_high"]
    assert expected["cost_usd"] < plan["on_demand_usd"]
    assert parse_time(expected["finish_by"]) == pytest.approx(
        parse_time(AT) + expected["hours"] * HOUR, abs=1e6
    )
    assert all(one["why"] for one in plan["rejected"])
    assert plan["reliable"]["machines"] == 1
    assert plan["at"] == AT


@pytest.mark.usefixtures("few_windows")
def test_the_same_moment_gives_the_same_plan(tmp_path: Path) -> None:
    words = ("plan", job(tmp_path), "--at", AT, "--json")
    assert spotctl(*words).out == spotctl(*words).out


def test_a_plan_is_read_with_its_reasons(tmp_path: Path) -> None:
    file = job(tmp_path, "deadline: 12h\nbudget: 25 USD")
    short, long = spotctl("plan", file, "--at", AT), spotctl("plan", file, "--at", AT, "--explain")
    assert short.code == long.code == 0, long.err
    names = [re.split("  +", line)[0] for line in short.out.splitlines() if line.strip()]
    assert (
        names
        == "nightly|machines|cost|time|evictions|on demand|next best|spotctl plan --explain shows why".split(
            "|"
        )
    )
    assert re.search(
        r"^cost +\$[\d.]+ \(\$[\d.]+ to \$[\d.]+\); the budget of \$25.00 is over 98% likely",
        short.out,
        re.M,
    )
    assert re.search(r"^time +.* hours .*; the deadline .* likely to be met", short.out, re.M)
    assert re.search(r"^on demand +\$[\d.]+ in .* saved", short.out, re.M)
    assert re.search(
        r"^next best +about \$[\d.]+ on local/[\w./-]+: \d+% (more|less by this estimate)",
        short.out,
        re.M,
    )
    assert "(synthetic market)" in short.out
    assert "clock" not in short.out, "one cost: that of the job"
    for line in ("work       2,000 clocks", "policy     min-cost-slo"):
        assert line.split()[0] in long.out
        assert line.split("  ")[-1].strip() in long.out
    assert "more markets (--json lists more)" in long.out
    assert "$/clock" in long.out
    assert " per clock" in long.out
    assert "unit of work" not in long.out
    for term in (
        "95%",
        "price ",
        "first hour",
        "each later hour: $",
        "each machine loses",
        "expected bill",
        "total",
    ):
        assert term in long.out
    assert len(long.out) > len(short.out)


@pytest.mark.usefixtures("few_windows")
def test_market_names_are_whole_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bid of nine decimals would take their room."""
    monkeypatch.setenv("COLUMNS", "80")
    digits = Path(__file__).parents[3] / "examples" / "trainers" / "digits.yaml"
    assert re.search(
        r"local/sim-east/sim-east-b/c4.2xlarge +\$0.0526 ", spotctl("plan", digits, "--explain").out
    )


@pytest.mark.usefixtures("few_windows")
def test_several_files_get_one_allocation(tmp_path: Path, approved: Approved) -> None:
    picture = tmp_path / "plans.svg"
    other = job(tmp_path, "budget: 25 USD", name="other")
    ended = spotctl("plan", job(tmp_path), other, "--at", AT, "--json", "--plot", picture)
    assert "<svg" in picture.read_text()
    approved(spotctl("plan", other, "--plot", "plans.jpg"))
    assert [one["job"] for one in ended.json] == ["nightly", "other"]
    again = tmp_path / "again"
    again.mkdir()
    twice = spotctl("plan", job(tmp_path), job(again), "--at", AT)
    approved(twice)


@pytest.mark.usefixtures("few_windows")
def test_without_a_moment_a_local_job_is_planned_for_where_its_replay_begins(
    tmp_path: Path, approved: Approved
) -> None:
    ended = spotctl("plan", job(tmp_path))
    approved(ended)
    told = job(tmp_path, "local: { start: 2026-01-22T00:00:00Z }", "told")
    assert spotctl("plan", told, "--json").json["at"] == "2026-01-22T00:00:00Z"
    both = spotctl("plan", job(tmp_path), told, "--json")
    assert {one["at"] for one in both.json} == {"2026-01-22T00:00:00Z"}


@pytest.mark.usefixtures("few_windows")
def test_an_unknown_job_length_is_reported(tmp_path: Path) -> None:
    file = job(tmp_path, "deadline: 12h\nbudget: 25 USD")
    file.write_text(
        "".join(
            line for line in file.read_text().splitlines(keepends=True) if "throughputs" not in line
        )
    )
    ended = spotctl("plan", file, "--at", AT, "--json")
    assert ended.json["work"]["assumed"] is True
    assert {one["source"] for one in ended.json["throughputs"].values()} == {
        "vCPU count, as no throughput is known"
    }
    text = spotctl("plan", file, "--at", AT, "--plot", tmp_path / "plan.png").out
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(
        r"^cost +\$[\d.]+ per hour \(.*; the budget of \$25.00 is enough for", text, re.M
    )
    assert "unknown: set `hours:`, or pass --hours" in text
    assert "cannot be checked, because the job length is unknown" in text
    explained = spotctl("plan", file, "--at", AT, "--explain").out
    assert "$/vCPU-hour" in explained
    assert "Job length unknown: figures are per hour. Set `hours:` or pass --hours." in explained
    assert "estimated from vCPUs (no measured throughput yet)" in explained
    told = spotctl("plan", file, "--at", AT, "--json", "--hours", "3h").json
    assert told["work"]["assumed"] is False
    # The hours are those of c4.xlarge, and the largest types are twice as fast.
    assert told["expected"]["hours"] > 1.5


@pytest.mark.parametrize(
    "more",
    [
        "deadline: 20m",
        "deadline: 1m",
        "budget: 1 USD",
        "objective: makespan-within-budget\nbudget: 0.2 USD",
    ],
)
def test_the_impossible_says_what_it_would_take(
    tmp_path: Path, more: str, approved: Approved
) -> None:
    ended = spotctl("plan", job(tmp_path, more), "--at", AT)
    approved(ended)


@pytest.mark.usefixtures("few_windows")
def test_stale_and_missing_prices_are_named(tmp_path: Path, approved: Approved) -> None:
    imported(tmp_path, flat("c4.xlarge", 9), flat("m4.xlarge", 5))
    file = job(tmp_path)
    file.write_text(
        file.read_text()
        .replace("[local]", "[aws], types: [c4.xlarge, m4.xlarge]")
        .replace("40", "40, m4.xlarge: 80")
    )
    plan = spotctl("plan", file, "--at", format_time(START + 8 * 24 * HOUR), "--json").json
    assert [one["market"] for one in plan["choice"]] == ["aws/us-east-1/us-east-1a/c4.xlarge"]
    assert next(
        (price["purchase"], price["source"]) for price in plan["prices"] if "c4" in price["market"]
    ) == (
        "spot",
        "stored spot price",
    )
    assert all(price["as_of"].startswith("20") for price in plan["prices"])
    assert [(cloud["cloud"], cloud["state"]) for cloud in plan["clouds"]] == [("aws", "fresh")]
    assert plan["fetch"] is None
    told = {one["market"]: one["why"] for one in plan["rejected"]}
    assert "stale: its last price is 3 days old" in told["aws/us-east-1/us-east-1a/m4.xlarge"]
    newest = spotctl("plan", file)
    approved(newest)
    assert "on AWS a bid is only a maximum price" in " ".join(
        spotctl("plan", file, "--explain").out.split()
    )
    file.write_text(file.read_text().replace("[aws]", "[aws, gcp]"))
    assert (
        "no prices of gcp are stored; fetch them: spotctl prices fetch --cloud gcp\n"
        in spotctl("plan", file).err
    )
    file.write_text(file.read_text().replace("[aws, gcp]", "[aws]"))
    unknown = tmp_path / "unknown.yaml"
    unknown.write_text(
        "name: j\nkind: command\nrun: 'true'\nhours: 2h\nresources: {clouds: [aws], types: "
        "{accelerators: A9000}}\n"
    )
    refused = spotctl("plan", unknown)
    approved(refused)
    late = spotctl("plan", file, "--at", "2026-03-01")
    approved(late)
    file.write_text(file.read_text().replace("[aws]", "[gcp]"))
    none = spotctl("plan", file)
    approved(none)


@pytest.mark.parametrize(
    "resources",
    [
        "[aws], types: {accelerators: H1O0:8}",
        "[gcp], types: {accelerators: RX580}",
        "[aws], types: [p3.8xlage]",
        "[aws], regions: [us-esat-1]",
        "[local], types: {accelerators: K8O}",
    ],
)
def test_a_mistyped_name_is_named_also_without_stored_prices(
    tmp_path: Path, resources: str, approved: Approved
) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(
        f"name: j\nkind: command\nrun: 'true'\nhours: 2h\nresources: {{clouds: {resources}}}\n"
    )
    ended = spotctl("plan", job, SPOTCTL_HOME=str(tmp_path))
    approved(ended)


@pytest.mark.usefixtures("few_windows")
def test_80_columns_hold_the_names_of_markets_in_a_plan(tmp_path: Path) -> None:
    """The starter file has the longest unit of work, and bids on two lines."""
    assert spotctl("init", tmp_path / "job.yaml").code == 0
    assert (
        max(map(len, spotctl("plan", tmp_path / "job.yaml", COLUMNS="80").out.splitlines())) <= 80
    )
    lines = spotctl("plan", tmp_path / "job.yaml", "--explain", COLUMNS="80").out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("machines  market"))
    for line in lines[at + 1 : at + 3]:
        assert re.fullmatch(r" +\d+  local/sim-[a-z]+/sim-[a-z]+-[ab]/[a-z0-9.]+  .*", line)


@pytest.mark.usefixtures("few_windows")
def test_why_no_mixture_was_considered_is_explained(tmp_path: Path) -> None:
    gang = tmp_path / "gang.yaml"
    gang.write_text(
        "name: gang\nkind: command\nrun: 'true'\nnodes: 2\nhours: 2h\nresources: {clouds: "
        "[local]}\n"
    )
    told = spotctl("plan", gang, "--at", AT, "--explain").out
    assert "none: all nodes of a command are of one type at a time" in told
    hours = tmp_path / "hours.yaml"
    hours.write_text(
        "name: hours\nkind: agileml\napp: mf\nhours: 2h\nstop: {loss: 0.1}\n"
        "resources: {clouds: [local], machines: 1..4}\n"
    )
    assert "in hours on one type" in spotctl("plan", hours, "--at", AT, "--explain").out
    assert (
        "mixtures of machine types"
        not in spotctl("plan", job(tmp_path), "--at", AT, "--explain").out
    )


@pytest.mark.usefixtures("few_windows")
def test_no_figure_is_infinite_where_the_first_hour_does_hardly_any_work(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "{name: a, kind: command, run: 'true', hours: 20m, strategy: 'lookahead:0',"
        " resources: {clouds: [local], types: [c4.2xlarge]}, local: {start: "
        "'2026-01-15T12:10:00Z'}}"
    )
    shown = spotctl("plan", path, "--explain", COLUMNS="120").out
    assert re.search(r"for an expected work of 0[,.]", shown)
    assert "inf" not in shown.replace("infor", "")


COMMAND = """
name: sums
kind: command
run: echo done
hours: 4h
resources: {{ clouds: [local], types: [c4.2xlarge] }}
strategy: {strategy}
{more}
"""


@pytest.mark.usefixtures("few_windows")
@pytest.mark.parametrize(
    ("strategy", "more", "says"),
    [
        ("proteus", "", ": no checkpoint, so each eviction, about every "),
        ("proteus", "checkpoint: {path: kept}", ""),
        ("on-demand", "", ""),
    ],
)
def test_a_plan_says_what_an_eviction_costs_a_command_that_saves_nothing(
    tmp_path: Path, strategy: str, more: str, says: str
) -> None:
    file = tmp_path / "sums.yaml"
    file.write_text(COMMAND.format(strategy=strategy, more=more))
    first = spotctl("plan", file, "--at", AT).out.splitlines()[0].strip()
    assert first.startswith(f"sums{says}")
    assert (
        re.search(r"starts it from scratch and loses up to \$0\.\d\d of work$", first) is not None
    ) is bool(says)
