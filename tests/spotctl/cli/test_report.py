"""`spotctl report cost` on an event log."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pricing_data.units import DAY, HOUR, NANO_SECONDS_PER_DOLLAR
from spotctl.cli.app import main
from spotctl.show.costs import focus
from spotctl.show.costs.answers import cost_summary
from spotctl.show.costs.tables import plain_text
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.show.costs.made import (
    AWS,
    GCP,
    NIGHT,
    RELIABLE,
    MadeRun,
    night,
    report_of,
    started_hour,
    write_log,
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[MadeRun], Path]:
    """Three nights and their log, which is written once: every event is synced to disk, which takes
    a while.
    """
    rng = np.random.default_rng(3)
    made = [night(0, rng), night(1, rng), night(2, rng, "weekly")]
    home = tmp_path_factory.mktemp("written")
    write_log(made, home)
    return made, home / "log.sqlite"


@pytest.fixture
def runs(written: tuple[list[MadeRun], Path], tmp_path: Path) -> list[MadeRun]:
    """Three nights in the event log of the home."""
    made, log = written
    (tmp_path / "home").mkdir()
    shutil.copy(log, tmp_path / "home")
    return made


def total_of(*runs: MadeRun) -> int:
    return sum(row.amount for made in runs for row in made.rows())


def test_json_sums_match_the_ledger(runs: list[MadeRun]) -> None:
    ended = spotctl("report", "cost", "--by", "run", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["total_usd"] == pytest.approx(
        total_of(*runs) / NANO_SECONDS_PER_DOLLAR, abs=5e-7
    )
    assert [group["run"] for group in ended.json["groups"]] == sorted(made.run for made in runs)
    assert sum(group["total_usd"] for group in ended.json["groups"]) == pytest.approx(
        ended.json["total_usd"], abs=1e-8
    )
    assert ended.json["evictions"] == sum(group["evictions"] for group in ended.json["groups"])


@pytest.mark.usefixtures("runs")
def test_the_budget_of_a_tag_is_a_line_of_the_report(tmp_path: Path) -> None:
    (tmp_path / "home" / "config.toml").write_text('[monthly_budgets]\n"user=ada" = 100\n')
    assert ", user=ada: $0.00 so far" in spotctl("report", "cost").out
    (month,) = spotctl("report", "cost", "--json").json["months_of_tags"]
    assert (month["tag"], month["paid_usd"], month["budget_usd"]) == ("user=ada", 0.0, 100.0)


def test_job_and_since_select_runs(runs: list[MadeRun]) -> None:
    def groups(*words: str) -> list[str]:
        return [
            one["run"]
            for one in spotctl("report", "cost", "--by", "run", "--json", *words).json["groups"]
        ]

    assert groups("--job", "weekly") == [runs[2].run]
    assert groups("--since", "2026-06-02") == [runs[1].run, runs[2].run]
    assert groups("--since", "2026-06-02", "--job", "nightly-recsys") == [runs[1].run]


@pytest.mark.parametrize("format_", ["table", "json", "csv", "md", "html", "focus", "focus-1.0"])
def test_every_format_goes_to_stdout_or_a_file(
    runs: list[MadeRun], format_: str, tmp_path: Path
) -> None:
    path = tmp_path / "costs"
    printed = spotctl("report", "cost", "--format", format_)
    ended = spotctl("report", "cost", "--format", format_, "--out", path)
    assert (printed.code, ended.code, ended.out) == (0, 0, "")
    assert "nightly-recsys" in printed.out or "focus" in format_
    assert len(path.read_text().splitlines()) >= len(runs)


def test_a_running_run_is_marked(tmp_path: Path) -> None:
    made = night(0, np.random.default_rng(1), is_running=True)
    for market, (times, prices) in made.markets.items():
        from spotctl.log.events import Priced

        made.add(NIGHT + HOUR, Priced(market, "per-second", tuple(times), tuple(prices)))
    write_log([made], tmp_path / "home")
    ended = spotctl("report", "cost")
    assert "nightly-recsys *" in ended.out
    assert "so far" in ended.out
    assert "* still running" in ended.out
    (group,) = spotctl("report", "cost", "--json").json["groups"]
    assert group["running"] == 1
    assert group["unsettled_usd"] == group["total_usd"] > 0


def test_a_run_without_prices_does_not_prevent_reports_on_others(
    runs: list[MadeRun], tmp_path: Path
) -> None:
    before = spotctl("report", "cost", "--json").json["groups"]
    write_log([night(3, np.random.default_rng(1), "unpriced", is_running=True)], tmp_path / "home")
    whole = spotctl("report", "cost", "--json").json
    (poor,) = (group for group in whole["groups"] if group["job"] == "unpriced")
    assert [group for group in whole["groups"] if group is not poor] == before
    assert poor["total_high_usd"] is whole["total_high_usd"] is None
    assert "unpriced: at least $" in spotctl("report", "cost", "--job", "unpriced").out
    assert (
        spotctl("report", "cost", "--job", runs[0].job, "--json").json["total_high_usd"] is not None
    )


@pytest.mark.parametrize("columns", [80, 200])
def test_the_table_fits_the_terminal(runs: list[MadeRun], columns: int) -> None:
    from rich.console import Console

    from spotctl.show.costs import tables

    text = io.StringIO()
    Console(file=text, width=columns).print(tables.terminal_report(report_of(runs), columns))
    lines = text.getvalue().splitlines()
    table = [
        line for line in lines if line.startswith(("job", "nightly-recsys ", "weekly ", "total"))
    ]
    assert len(table) == 4
    assert all(len(line) <= columns and "…" not in line for line in table)
    assert all("$" in line for line in table[1:])


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("by", ["market", "job,market", "job,run,market"])
def test_names_of_markets_and_runs_stay_whole(runs: list[MadeRun], columns: int, by: str) -> None:
    ended = spotctl("report", "cost", "--by", by, COLUMNS=str(columns))
    lines = ended.out.splitlines()
    assert max(map(len, lines)) <= columns
    for market in (*AWS, GCP, RELIABLE):
        found = [line for line in lines if str(market) in line]
        assert found
        assert all("$" in line for line in found)
    if "run" in by:
        assert all(any(one.run in line.split() for line in lines) for one in runs)


def test_a_name_too_long_for_the_terminal_breaks_after_a_slash_or_hyphen(
    runs: list[MadeRun],
) -> None:
    ended = spotctl("report", "cost", "--by", "job,market", COLUMNS="60")
    lines = ended.out.splitlines()
    assert runs
    assert max(map(len, lines)) <= 60
    at = next(i for i, line in enumerate(lines) if line.startswith("  aws/us-east-1/us-east-1a/ "))
    assert lines[at + 1].strip() == "c6i.2xlarge"


@pytest.mark.parametrize(
    "words",
    [
        ["--job", "nightly"],
        ["--by", "job,hue"],
        ["--since", "yesterday"],
        ["--since", "2099-01-01"],
        ["--format", "pdf"],
        ["--json", "--format", "csv"],
    ],
)
def test_errors_are_one_line(
    runs: list[MadeRun], words: list[str], tmp_path: Path, approved: Approved
) -> None:
    path = tmp_path / "out.html"
    ended = spotctl("report", "cost", *words, "--out", path)
    approved(ended)
    assert ended.out == ""
    assert runs
    assert not path.exists()


@pytest.mark.parametrize("format_", ["table", "json", "csv", "md", "html", "focus", "focus-1.0"])
def test_no_runs_cost_nothing(format_: str, tmp_path: Path) -> None:
    out = tmp_path / "costs"
    assert spotctl("report", "cost", "--format", format_, "--out", out).code == 0
    assert out.stat().st_size > 0
    assert spotctl("report", "cost", "--json").json["total_usd"] == 0.0
    empty = spotctl("report", "cost")
    assert (empty.out, empty.err) == (
        "No run began in that time.\n",
        "no jobs yet (start one with: spotctl launch FILE)\n",
    )


@pytest.mark.usefixtures("runs")
def test_a_time_without_runs_cost_nothing() -> None:
    ended = spotctl("report", "cost", "--since", "1h", "--json")
    assert (ended.code, ended.json["total_usd"], ended.json["groups"]) == (0, 0.0, [])


def test_months_are_groups(runs: list[MadeRun]) -> None:
    found = spotctl("report", "cost", "--by", "month", "--json").json
    assert runs
    assert {group["month"] for group in found["groups"]} == {"2026-06"}
    assert sum(group["total_usd"] for group in found["groups"]) == pytest.approx(found["total_usd"])


def test_periods_cut_runs_and_add_up(runs: list[MadeRun], approved: Approved) -> None:
    """A night that a moment cuts is in both parts, and to the nano-dollar no cent is counted twice
    or lost.
    """

    def figures(*words: str) -> dict[str, Any]:
        answer: dict[str, Any] = spotctl("report", "cost", "--by", "kind", "--json", *words).json
        return answer

    noon = "2026-06-02T04:10:30Z"
    whole, before, after = figures(), figures("--until", noon), figures("--since", noon)
    for name in ("total_usd", "on_demand_usd", "evictions"):
        assert before[name] + after[name] == pytest.approx(whole[name], abs=1e-8), name
        assert min(before[name], after[name]) > 0
    assert (before["work"], after["budget_usd"], whole["budget_usd"]) == (
        None,
        None,
        25.0 * len(runs),
    )
    assert {"spot machines", "on-demand machines"} <= {one["kind"] for one in whole["groups"]}
    ended = spotctl("report", "cost", "--since", noon, "--until", "2026-06-02")
    approved(ended)


def test_types_are_split_by_pricing(runs: list[MadeRun]) -> None:
    found = spotctl("report", "cost", "--by", "type", "--json").json["groups"]
    assert runs
    assert ("m6i.large", "on-demand") in {(one["type"], one["pricing"]) for one in found}
    assert ("c6i.2xlarge", "spot") in {(one["type"], one["pricing"]) for one in found}


def test_unwritable_files_are_one_line(runs: list[MadeRun], tmp_path: Path) -> None:
    assert runs
    for path in (
        tmp_path / "not there" / "costs.html",
        tmp_path,
        tmp_path / "home" / "log.sqlite" / "costs.html",
    ):
        ended = spotctl("report", "cost", "--format", "html", "--out", path)
        assert ended.code == 2, path
        assert str(path) in ended.error
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    ("name", "words", "begin"),
    [
        ("costs.html", (), "<!doctype html>"),
        ("costs.json", (), r"\{"),
        ("costs.csv", (), "job,"),
        ("costs", (), r"\$|\d jobs?: |[a-z-]+: \$"),
        ("costs.html", ("--format", "csv"), "job,"),
    ],
)
def test_a_report_is_written_in_the_format_that_its_file_name_ends_with(
    runs: list[MadeRun], tmp_path: Path, name: str, words: tuple[str, ...], begin: str
) -> None:
    assert runs
    assert spotctl("report", "cost", "--out", tmp_path / name, *words).code in (None, 0)
    assert re.match(begin, (tmp_path / name).read_text())


def test_focus_sums_match_the_ledger(runs: list[MadeRun]) -> None:
    lines = list(csv.DictReader(io.StringIO(spotctl("report", "cost", "--format", "focus").out)))
    rows = [row for made in runs for row in made.rows()]
    assert len(lines) == len(rows)
    for column, amounts in (
        ("BilledCost", [row.amount for row in rows]),
        ("EffectiveCost", [row.amount for row in rows]),
        (
            "ListCost",
            [row.amount * row.listed // row.price if row.price else row.amount for row in rows],
        ),
    ):
        exact = Decimal(sum(amounts)) / NANO_SECONDS_PER_DOLLAR
        assert abs(sum(Decimal(line[column]) for line in lines) - exact) < Decimal("1e-14"), column


def test_focus_rules(runs: list[MadeRun]) -> None:
    """What a validator checks: columns that are never null, allowed values, and cost = price x
    quantity.
    """
    assert runs
    never_null = """BilledCost BillingAccountId BillingAccountType BillingCurrency BillingPeriodEnd BillingPeriodStart
        ChargeCategory ChargeDescription ChargeFrequency ChargePeriodEnd ChargePeriodStart ContractedCost EffectiveCost
        InvoiceIssuerName ListCost PricingCategory PricingQuantity PricingUnit ProviderName PublisherName
        ServiceCategory ServiceName ServiceSubcategory SkuId SkuPriceId SkuMeter ListUnitPrice ContractedUnitPrice
        ResourceId ResourceType RegionId Tags""".split()
    for line in csv.DictReader(io.StringIO(spotctl("report", "cost", "--format", "focus").out)):
        assert not [name for name in never_null if not line[name]]
        assert line["ChargeCategory"] == "Usage"
        assert line["PricingCategory"] in {"Standard", "Dynamic"}
        assert (line["PricingCategory"] == "Dynamic") == (
            line["x_SpotctlKind"] != "disk" and "m6i" not in line["SkuId"]
        )
        assert line["BillingCurrency"] == "USD"
        assert Decimal(line["ListUnitPrice"]) > 0
        assert "-0" not in line.values()
        assert line["BillingPeriodStart"] <= line["ChargePeriodStart"] < line["ChargePeriodEnd"]
        assert line["ChargePeriodStart"] < line["BillingPeriodEnd"]
        quantity = Decimal(line["PricingQuantity"])
        for cost, price in (
            ("ListCost", "ListUnitPrice"),
            ("ContractedCost", "ContractedUnitPrice"),
        ):
            assert abs(Decimal(line[cost]) - Decimal(line[price]) * quantity) < Decimal("1e-15")
        assert json.loads(line["Tags"])["spotctl-run"]


def test_focus_has_a_period_for_charges_after_the_end_of_a_machine() -> None:
    lines = list(csv.DictReader(focus.csv_lines(report_of([started_hour()]), focus.COLUMNS)))
    assert all(line["ChargePeriodStart"] < line["ChargePeriodEnd"] for line in lines)
    assert [line["ChargePeriodEnd"] for line in lines][-1] == "2026-06-01T04:00:00Z"
    assert sum(Decimal(line["PricingQuantity"]) for line in lines) == pytest.approx(Decimal(2))


def test_the_summary_matches_the_report(tmp_path: Path) -> None:
    made = night(0, np.random.default_rng(3))
    _, summary = cost_summary(report_of([made]), tmp_path / "costs.html")
    paid = f"${total_of(made) / NANO_SECONDS_PER_DOLLAR:.2f}"
    title, _, *lines = summary.splitlines()
    assert f"{paid} paid" in title
    assert f"- paid: {paid}" in lines
    assert title.startswith("**nightly-recsys: ")
    assert lines[-1].endswith("costs.html")
    assert len(summary) < 700


def test_days_are_those_of_the_providers_clock(tmp_path: Path) -> None:
    """A run across midnight has rows on both days."""
    made = MadeRun("a-1", "a", NIGHT)
    made.begin()
    made.price(AWS[0], [NIGHT, NIGHT + 2 * DAY], [100_000_000, 100_000_000])
    names = made.rent(AWS[0], 1, NIGHT + 20 * HOUR)
    made.end_machines(names, NIGHT + 26 * HOUR, "returned")
    made.finish(NIGHT + 26 * HOUR, clocks=1)
    write_log([made], tmp_path / "home")
    days = {
        one["day"]: one["total_usd"]
        for one in spotctl("report", "cost", "--by", "day", "--json").json["groups"]
    }
    assert days == {"2026-06-01": pytest.approx(0.2), "2026-06-02": pytest.approx(0.4)}


def test_a_tag_may_have_the_name_of_a_field_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = MadeRun("a-1", "a", NIGHT, tags={"figures": "bar charts"})
    made.begin()
    made.price(AWS[0], [NIGHT, NIGHT + 2 * DAY], [100_000_000, 100_000_000])
    made.end_machines(made.rent(AWS[0], 1, NIGHT), NIGHT + HOUR, "returned")
    made.finish(NIGHT + HOUR, clocks=1)
    write_log([made], tmp_path / "home")
    with suppress(SystemExit):
        main(["report", "cost", "--by", "figures", "--json"])
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert (group["figures"], group["total_usd"]) == ("bar charts", pytest.approx(0.1))


class Screen(io.StringIO):
    """A terminal that keeps what it gets."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("format_", ["csv", "md", "json"])
def test_no_format_commands_the_terminal_and_a_file_keeps_what_it_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    made = night(0, np.random.default_rng(3), "week\x1b[2J\u202ely")
    write_log([made], tmp_path / "home")
    assert not {"\x1b", "\u202e"} & set(spotctl("report", "cost").out)
    assert not {"\x1b", "\u202e"} & set(plain_text(report_of([made])))
    monkeypatch.setattr("sys.stdout", screen := Screen())
    with pytest.raises(SystemExit):
        main(["report", "cost", "--by", "job", "--format", format_])
    assert not {"\x1b", "\u202e"} & set(screen.getvalue())
    assert r"[2J\u202ely" in screen.getvalue()
    if format_ == "csv":
        assert (
            "week\x1b[2J\u202ely" in spotctl("report", "cost", "--by", "job", "--format", "csv").out
        )
