"""What can be had now, what a job may use of it, and which types suit it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bench.aws_machine_types import recorded
from bidbrain.strategies.base import mean_time_to_failure
from pricing_data.catalog import (
    Catalog,
    InstanceType,
    MachineTraits,
    OnDemandPrice,
    shipped_types,
)
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.library import Library
from pricing_data.market import LINUX, Market
from pricing_data.series import WatchRecord
from pricing_data.store import PriceStore
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, HOUR, Span
from spotctl.files.job.conversions import read_accelerators
from spotctl.files.job.reader import loads
from spotctl.files.job.resources import Needs, Resources
from spotctl.files.job.spec import Accelerators, JobSpec, Range
from spotctl.home.errors import BadRequest, SpotctlError
from spotctl.planning.offers import (
    STALE_AFTER,
    MachineKind,
    MarketSnapshot,
    _fits,
    eligible,
    has_public_zone,
    why_unsuitable,
    why_unusable,
)
from spotctl.run.start.stored_facts import price_table
from tests.pricing_data.histories import START, random_batch
from tests.spotctl.planning import open_types
from tests.spotctl.planning.open_types import COMMAND, JOBS, PLACES, planned
from tests.spotctl.planning.worlds import (
    BEGIN,
    CENT,
    NOW,
    catalog,
    flat,
    offer,
    snapshot,
    spec,
    table_of,
)


@given(st.integers(0, 50), st.integers(-600, 40_000))
def test_prices_and_ages_are_those_of_each_history(seed: int, seconds: int) -> None:
    table = PriceTable.of(random_batch(seed, 5, 60))
    at = START + seconds * 1_000_000
    found = MarketSnapshot.of(table, catalog(), at)
    for row, series in enumerate(table):
        market = series.market
        assert found.kinds[found.kind[row]] == MachineKind(
            market.cloud, market.region, market.instance_type
        )
        before = series.times[series.times <= at]
        if not before.size:
            assert found.age[row] == -1
        else:
            assert found.price[row] == series.prices[before.size - 1]
            assert found.age[row] == (0 if before.size < len(series) else at - series.last)
            known = found.history(row)
            assert (known.market, known.last, known.prices[-1]) == (market, at, found.price[row])
            assert known.first == min(series.first, at - 4 * HOUR)
            assert (
                known.prices[np.isin(known.times, before)].tolist()
                == series.prices[: before.size].tolist()
            )


def test_a_table_of_histories_is_the_one_that_the_store_would_make() -> None:
    table = PriceTable.of(random_batch(1, 6, 60))
    again = table_of(reversed(list(table)))
    assert again.markets == table.markets
    assert list(again) == list(table)
    assert len(table_of([])) == 0
    assert not eligible(
        MarketSnapshot.of(table_of([]), catalog(), NOW), np.zeros(0, dtype=bool), spec()
    )[0].size


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, {"a.large", "a.xlarge", "b.large"}),
        ({"types": ("a.*",)}, {"a.large", "a.xlarge"}),
        ({"types": ("b.large", "a.xlarge")}, {"b.large", "a.xlarge"}),
        ({"needs": Needs(vcpus=Range(8))}, {"a.xlarge"}),
        ({"needs": Needs(memory_gib=Range(1.0, 8.0))}, {"a.large", "b.large"}),
        ({"needs": Needs(accelerators=(Accelerators("V100", Range(1)),))}, set()),
        ({"regions": ("us-west-2",)}, {"b.large"}),
        ({"clouds": ("gcp",)}, set()),
    ],
)
def test_resources_mean_these_kinds(changes: dict[str, object], kept: set[str]) -> None:
    found = snapshot(
        flat(offer("a.large"), CENT),
        flat(offer("a.xlarge"), CENT),
        flat(offer("b.large", region="us-west-2"), CENT),
    )
    resources: Resources = replace(spec().resources, **changes)  # type: ignore[arg-type]
    kinds, fitting, _ = eligible(found, found.usable, replace(spec(), resources=resources))
    assert {found.kinds[kind].type for kind in kinds.tolist()} == kept
    assert fitting == len(kept)


def test_an_unusable_market_has_a_reason() -> None:
    windows = Market("aws", "us-east-1", "us-east-1b", "a.large", "windows")
    found = snapshot(
        flat(offer("a.large"), CENT),
        flat(offer("a.large", "c"), CENT, until=NOW - STALE_AFTER - HOUR),
        flat(offer("a.large", "d"), CENT, since=NOW + DAY, until=NOW + 2 * DAY),
        flat(offer("a.large", region="eu-west-1"), CENT),
        flat(windows, CENT),
    )
    _, _, unusable = eligible(found, found.usable, spec())
    told = {
        str(market): why
        for market, why in (why_unusable(found, row, spec()) for row in unusable.tolist())
    }
    assert found.usable.sum() == 1
    assert "stale: its last price is 37 hours old" in told[str(offer("a.large", "c"))]
    assert "before the planned moment" in told[str(offer("a.large", "d"))]
    assert (
        "on-demand price of a.large in eu-west-1" in told[str(offer("a.large", region="eu-west-1"))]
    )
    assert "sells windows machines" in told[str(windows)]


def test_a_price_is_not_stale_while_its_history_goes_on() -> None:
    sparse = table_of(
        [flat(offer("a.large"), CENT, since=BEGIN, until=BEGIN + DAY), flat(offer("b.large"), CENT)]
    )
    times = sparse.times.copy()
    times[1] = NOW + DAY
    found = MarketSnapshot.of(replace(sparse, times=times), catalog(), NOW)
    assert found.age[0] == 0
    assert found.usable[0]


def test_a_price_unchanged_for_a_month_is_current_while_its_market_is_watched(
    tmp_path: Path,
) -> None:
    """Google changes its prices a few times a year."""
    market, since = offer("a.large"), NOW - 30 * DAY
    store = PriceStore(tmp_path)
    unchanged = PriceBatch.of([PriceEvent(market, since, CENT)])
    store.commit(
        FetchedRows(
            prices=unchanged, watched={market: WatchRecord(complete=(Span(since, NOW - HOUR),))}
        )
    )
    found = MarketSnapshot.of(price_table(Library(store), [spec()]), catalog(), NOW)
    assert found.age.tolist() == [HOUR]
    assert found.usable.all()


JOB = "name: job\nkind: command\nrun: echo\nresources: {{clouds: [aws{clouds}]{more}}}\n{rest}"
OPEN = {machine.name: machine for machine in shipped_types() if machine.cloud == "aws"}


def job(more: str = "", rest: str = "", clouds: str = ", gcp, azure") -> JobSpec:
    return loads(
        JOB.format(more=f", {more}" if more else "", rest=rest, clouds=clouds), Path(__file__)
    )


def why(name: str, more: str = "", rest: str = "") -> str:
    return why_unsuitable(OPEN[name], job(more, rest), NOW)


@pytest.mark.parametrize("arch", ["", "arm64", "any"])
@pytest.mark.parametrize("burstable", ["", "true"])
def test_of_all_types_those_suit_that_a_practitioner_would_take(arch: str, burstable: str) -> None:
    more = ", ".join(
        f"{key}: {value}" for key, value in (("arch", arch), ("burstable", burstable)) if value
    )
    asked = job(more)
    for record in recorded():
        suits = not why_unsuitable(OPEN[record.name], asked, NOW)
        family = record.name.partition(".")[0]
        allowed = {"": {"x86_64"}, "arm64": {"arm64"}, "any": {"x86_64", "arm64"}}[arch]
        expected = (
            record.traits.architecture in allowed
            and record.memory_gib >= 2
            and (bool(burstable) or family not in ("t2", "t3", "t3a", "t4g"))
            and record.accelerator != "V100"
            and record.traits.hypervisor != "xen"
        )
        assert suits == expected, record.name


@pytest.mark.parametrize(
    ("name", "more", "rest", "problem"),
    [
        ("t4g.nano", "", "", "arm64, and the job x86_64 (resources: {arch: arm64}, or any)"),
        ("t4g.nano", "types: [t4g.nano]", "", "arm64, and the job x86_64"),
        ("t4g.nano", "types: [t4g.nano], arch: any", "", ""),
        ("t4g.nano", "types: [t4g.*], arch: any", "", "0.5 GiB, and the job needs 2"),
        (
            "t4g.nano",
            "types: [t4g.nano], arch: any, memory: 1 GiB",
            "",
            "0.5 GiB, and the job needs 1",
        ),
        ("t3.nano", "memory: 512 MiB", "", "burstable: it may use 5% of its vCPUs all the time"),
        ("t3.nano", "memory: 512 MiB, burstable: true", "", ""),
        ("t3.large", "types: ['*.large']", "", "burstable"),
        ("m4.large", "", "", "its console is shown minutes late"),
        ("m4.large", "types: ['*.large']", "", "its console is shown minutes late"),
        ("m4.large", "types: ['m4.*']", "", ""),
        ("t3.large", "types: ['t3.*']", "", ""),
        ("t3.large", "types: [t3.large], burstable: false", "", "burstable"),
        (
            "t3.large",
            "types: [t3.large], placement: close",
            "nodes: 2",
            "such machines are not placed close together",
        ),
        ("c6i.large", "types: [c6i.large], placement: close", "nodes: 2", ""),
        ("m6i.large", "memory: 16 GiB", "", "8 GiB, and the job needs 16"),
        ("c6i.large", "types: {memory_gib: 4..}", "", ""),
        (
            "p3dn.24xlarge",
            "",
            "",
            "no driver for its V100; name an image that does (image: {ami: ...})",
        ),
        ("p3dn.24xlarge", "", "image: {ami: ami-0123456789abcdef0}", ""),
        ("mac1.metal", "arch: any", "strategy: on-demand", "no image of Linux runs on a Mac"),
        ("g5.xlarge", "", "", ""),
        ("hpc6a.48xlarge", "", "", ""),
    ],
)
def test_each_rule_names_its_cure(name: str, more: str, rest: str, problem: str) -> None:
    found = why(name, more, rest)
    assert problem in found
    assert bool(problem) == bool(found)


def test_an_image_of_the_settings_counts_as_the_users_own() -> None:
    machine = OPEN["p3dn.24xlarge"]
    assert "no driver" in why_unsuitable(machine, job(), NOW, {"gcp"})
    assert not why_unsuitable(machine, job(), NOW, {"aws"})


def test_a_retired_type_suits_only_earlier_times() -> None:
    machine = InstanceType("aws", "m9.large", 2, 8.0, traits=MachineTraits(retires=NOW))
    assert "retired" in why_unsuitable(machine, job(), NOW)
    assert not why_unsuitable(machine, job(), NOW - 1)


def test_nothing_is_held_against_a_type_of_which_nothing_is_known() -> None:
    assert not why_unsuitable(InstanceType("aws", "m9.large", 2, 8.0), job(), NOW)
    assert not why_unsuitable(InstanceType("local", "m9.large", 2, 8.0), job(), NOW)


CHOSEN = {
    # Where nothing is known of evictions, less time for the same money.
    "a command": ("c6i.large", "e2-standard-16", "Standard_F16s_v2"),
    # Two types at the same price per vCPU are not mixed if a machine of one does eight times the
    # work of the other's.
    "a training of 8 machines": ("c6i.4xlarge", "e2-standard-16", "Standard_F2s_v2"),
    "an A100": ("p4d.24xlarge", "a2-highgpu-1g", "Standard_NC24ads_A100_v4"),
    "an H100": ("p5.48xlarge", "a3-highgpu-8g", "Standard_NC40ads_H100_v5"),
    "a T4": ("g4dn.xlarge", "n1-standard-4+1-nvidia-tesla-t4", "Standard_NC4as_T4_v3"),
    "on ARM": ("c7g.large", "t2a-standard-2", "Standard_D2ps_v5"),
}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("cloud", PLACES)
def test_a_job_without_types_gets_what_a_practitioner_would_take(job: str, cloud: str) -> None:
    text, more = JOBS[job]
    plan = planned(text, cloud, more)
    names = {choice.rent.offer.market.instance_type for choice in plan.cost.choice}
    assert names == set(CHOSEN[job][list(PLACES).index(cloud)].split())


def test_the_documentation_has_the_choices() -> None:
    page = open_types.PAGE.read_text()
    assert page == open_types.written(page), "run python -m tests.spotctl.planning.open_types"


@pytest.mark.parametrize(
    ("cloud", "types", "problem"),
    [
        ("aws", "[t4g.nano]", "us-east-1a/t4g.nano: it is arm64, and the job x86_64"),
        (
            "aws",
            "[p3.2xlarge]",
            "p3.2xlarge: AWS's image has no driver for its V100; name an image that does",
        ),
        ("azure", "[Standard_A1_v2]", "Standard_A1_v2: it boots only images of generation 1"),
        ("azure", "[Standard_NC6s_v3]", "Standard_NC6s_v3: its cloud has retired it"),
        ("gcp", "['*v100']", "tesla-v100: Google's image has no driver for its V100"),
    ],
)
def test_a_named_type_that_does_not_suit_is_refused_in_one_line(
    cloud: str, types: str, problem: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        planned(COMMAND, cloud, f", types: {types}")
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)


def test_of_several_named_types_those_that_do_not_suit_are_rejected_with_the_reason() -> None:
    plan = planned(COMMAND, "aws", ", types: [t4g.nano, c6i.large]")
    assert plan.cost.choice[0].rent.offer.market.instance_type == "c6i.large"
    rejected = {market.market.instance_type: market.why for market in plan.rejected}
    assert "it is arm64" in rejected["t4g.nano"]


def test_burstable_types_that_a_job_wants_are_compared_by_their_baseline() -> None:
    plan = planned(COMMAND, "aws", ", burstable: true")
    assert plan.cost.choice[0].rent.offer.market.instance_type == "c6i.large"
    plan = planned(COMMAND, "aws", ", types: ['t3.*']")
    (choice,) = plan.cost.choice
    assert (choice.rent.offer.market.instance_type, choice.rent.offer.nu) == ("t3.small", 0.4)


def test_nothing_that_suits_is_an_error_with_a_reason() -> None:
    with pytest.raises(SpotctlError, match="none of the 16 matching markets can be used"):
        planned(COMMAND, "aws", ", memory: 4 TiB")


@pytest.mark.parametrize(
    ("wanted", "fitting"),
    [
        ("L4:1", {"L4"}),
        ("A10:1", {"A10"}),
        ("A100:1", {"A100", "A100-80GB"}),
        ("A100:80GB:1", {"A100-80GB"}),
        ("40GB..:1", {"A100", "A100-80GB", "L40S"}),
        ("24GB:1", {"A10", "L4"}),
        (["T4:1", "..24GB:1"], {"A10", "L4", "T4"}),
        ("L4:2", set()),
    ],
)
def test_accelerators_mean_these_models(wanted: str | list[str], fitting: set[str]) -> None:
    models = ("A10", "A100", "A100-80GB", "L4", "L40S", "T4")
    resources = replace(spec().resources, needs=Needs(accelerators=read_accelerators(wanted)))
    machines = [InstanceType("aws", model, 8, 32.0, model, 1) for model in models]
    assert {each.name for each in machines if _fits(each, resources)} == fitting


def test_a_zone_of_a_public_list_is_used_until_the_accounts_own_prices_are_known() -> None:
    public, own, other = (
        Market("aws", "us-east-1", zone, name)
        for zone, name in (
            ("use1-az1", "c5.large"),
            ("us-east-1a", "c5.large"),
            ("use1-az1", "c5.xlarge"),
        )
    )
    listed = tuple(
        OnDemandPrice("aws", "us-east-1", name, LINUX, 0, 10**9, "a list")
        for name in ("c5.large", "c5.xlarge")
    )

    def usable(*markets: Market) -> set[Market]:
        events = [PriceEvent(market, DAY, 10**8) for market in markets]
        table = PriceTable.of(PriceBatch.of(events))
        snapshot = MarketSnapshot.of(table, Catalog(prices=listed), DAY + HOUR)
        rows = zip(snapshot.markets, snapshot.usable.tolist(), strict=True)
        return {market for market, is_usable in rows if is_usable}

    assert usable(public, other) == {public, other}
    assert usable(public, own, other) == {own, other}
    assert not has_public_zone(own)


def of_looks(count: int, apart: int, price: int = 10**8) -> MarketSnapshot:
    """A market that was looked at so many times, the last time an hour ago."""
    market = Market("aws", "us-east-1", "use1-az1", "c5.large")
    times = sorted(START - apart * number for number in range(count))
    table = PriceTable.of(PriceBatch.of(PriceEvent(market, time, price) for time in times))
    looks = WatchRecord(tuple(Span(time, time) for time in times))
    listed = OnDemandPrice("aws", "us-east-1", "c5.large", LINUX, START, 10**9, "a list")
    whole = replace(table, watched={market: looks}).with_last_seen()
    return MarketSnapshot.of(whole, Catalog(prices=(listed,)), START + HOUR)


@given(st.integers(2, 200), st.integers(5 * HOUR, 9 * HOUR))
def test_between_two_looks_at_a_price_nothing_is_known(count: int, apart: int) -> None:
    """However often the same price was seen, no hour between was."""
    once, often = of_looks(1, apart), of_looks(count, apart)
    distance = 10**8

    assert often.history(0) == once.history(0)
    stated, expected = (
        snapshot.outlook.of(snapshot.history(0), distance) for snapshot in (often, once)
    )
    assert (stated.low, stated.high, stated.observations) == (
        expected.low,
        expected.high,
        expected.observations,
    )
    often_failing, once_failing = (
        mean_time_to_failure(snapshot.history(0), 10**9) for snapshot in (often, once)
    )
    assert often_failing == once_failing
