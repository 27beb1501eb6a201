"""Days and months of a time zone: rows are cut at its midnights, and days of 23 and 25 hours add
up.
"""

from __future__ import annotations

from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pricing_data.units import DAY, HOUR, parse_time
from spotctl.log.ledger.final_cost import timeline_of
from spotctl.log.ledger.rows import usd
from spotctl.show.costs.periods import By, Period, by_day, local
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.show.costs.made import AWS, NOW, MadeRun, in_order, night, report, write_log

BERLIN = ZoneInfo("Europe/Berlin")
SPRING, AUTUMN = parse_time("2026-03-27T12:00:00Z"), parse_time("2026-10-23T12:00:00Z")
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kathmandu",
    "Pacific/Kiritimati",
    "America/Havana",
]


def dollar_an_hour(begin: int, days: int) -> MadeRun:
    """A machine for some days at a dollar an hour, in one row of work."""
    made = MadeRun("long-1", "long", begin)
    made.begin()
    made.price(AWS[0], [begin, begin + days * DAY], [1_000_000_000] * 2)
    made.end_machines(made.rent(AWS[0], 1, begin), begin + days * DAY, "returned")
    made.finish(begin + days * DAY, clocks=10)
    return made


def by_days(runs: list[MadeRun], zone: tzinfo, by: By = By.DAY) -> dict[str, float]:
    """The dollars of each day."""
    timelines = in_order(timeline_of(made.log(1000 * i)) for i, made in enumerate(runs))
    rows = [row for made in runs for row in made.rows()]
    made = report(rows, timelines, Period(zone=zone), (by,), NOW)
    assert sum(group.figures.total for group in made.groups) == made.whole.total
    assert usd(made.whole.total) == pytest.approx(
        usd(sum(row.amount for row in rows)), abs=1e-9 * len(runs)
    )
    assert sum(group.figures.machine_micros for group in made.groups) == made.whole.machine_micros
    return {group.key[by]: group.figures.total / 3.6e12 for group in made.groups}


def test_the_day_of_summer_time_has_23_hours_and_that_of_winter_time_25() -> None:
    spring = by_days([dollar_an_hour(SPRING, 4)], BERLIN)
    assert spring == {
        "2026-03-27": 11,
        "2026-03-28": 24,
        "2026-03-29": 23,
        "2026-03-30": 24,
        "2026-03-31": 14,
    }
    autumn = by_days([dollar_an_hour(AUTUMN, 4)], BERLIN)
    assert autumn == {
        "2026-10-23": 10,
        "2026-10-24": 24,
        "2026-10-25": 25,
        "2026-10-26": 24,
        "2026-10-27": 13,
    }


def test_days_are_those_of_bills_by_default() -> None:
    assert by_days([dollar_an_hour(SPRING, 2)], UTC) == {
        "2026-03-27": 12,
        "2026-03-28": 24,
        "2026-03-29": 12,
    }


def test_months_end_at_midnight_of_the_zone() -> None:
    end_of_june = parse_time("2026-06-30T20:00:00Z")
    run = dollar_an_hour(end_of_june, 1)
    assert by_days([run], UTC, By.MONTH) == {"2026-06": 4, "2026-07": 20}
    assert by_days([run], BERLIN, By.MONTH) == {"2026-06": 2, "2026-07": 22}


@given(st.sampled_from(ZONES), st.integers(0, 500 * 24), st.integers(0, 200))
def test_parts_of_rows_are_within_a_day_and_add_up_exactly(
    name: str, first: int, seed: int
) -> None:
    zone = ZoneInfo(name)
    (row, *_) = dollar_an_hour(SPRING, 1).rows()
    rng = np.random.default_rng(seed)
    begin = SPRING + first * HOUR + int(rng.integers(HOUR))
    rows = [
        row._replace(
            begin=begin,
            end=begin + int(rng.integers(4 * DAY)),
            amount=int(rng.integers(-(10**12), 10**12)),
        )
        for _ in range(3)
    ]
    rows.append(row._replace(begin=begin, end=begin))
    parts = list(by_day(rows, zone))
    assert sum(part.amount for part in parts) == sum(row.amount for row in rows)
    assert sum(part.on_demand for part in parts) == sum(row.on_demand for row in rows)
    assert sum(part.end - part.begin for part in parts) == sum(row.end - row.begin for row in rows)
    for part in parts:
        assert local(part.begin, zone).date() == local(max(part.end - 1, part.begin), zone).date()


@given(st.sampled_from(ZONES), st.integers(0, 50))
def test_nights_add_up_in_every_zone(name: str, seed: int) -> None:
    by_days([night(i, np.random.default_rng(seed)) for i in range(2)], ZoneInfo(name))


# -- the command -----------------------------------------------------------------------------------


def test_the_command_states_the_time_zone(tmp_path: Path) -> None:
    write_log([dollar_an_hour(SPRING, 4)], tmp_path / "home")
    words = ("report", "cost", "--by", "day")
    assert "days are in UTC, as in bills" in spotctl(*words).out
    berlin = spotctl(*words, "--tz", "Europe/Berlin")
    assert "days are in Europe/Berlin; bills and the monthly budget are in UTC" in berlin.out
    answer = spotctl(*words, "--tz", "Europe/Berlin", "--json").json
    assert answer["time_zone"] == "Europe/Berlin"
    assert [(group["day"], group["total_usd"]) for group in answer["groups"]][2] == (
        "2026-03-29",
        23,
    )
    assert (
        "Days are in Europe/Berlin"
        in spotctl(*words, "--tz", "Europe/Berlin", "--format", "html").out
    )
    assert (
        "days are in Europe/Berlin"
        in spotctl(*words, "--tz", "Europe/Berlin", "--format", "md").out
    )
    assert "are in UTC" not in spotctl("report", "cost").out


def test_dates_of_a_period_are_those_of_the_time_zone(tmp_path: Path) -> None:
    write_log([dollar_an_hour(SPRING, 4)], tmp_path / "home")
    words = ("report", "cost", "--since", "2026-03-29", "--until", "2026-03-30", "--json")
    assert spotctl(*words).json["total_usd"] == 24
    assert spotctl(*words, "--tz", "Europe/Berlin").json["total_usd"] == 23


@pytest.mark.parametrize(
    "name",
    ["Europe/Berln", "europe/berlin", "", "../x"],
)
def test_a_bad_time_zone_is_one_line(name: str, approved: Approved) -> None:
    ended = spotctl("report", "cost", "--tz", name)
    approved(ended)


def test_midnight_belongs_to_the_new_day() -> None:
    """A row that begins at midnight is of the new day, one that ends there of the old one."""
    (row, *_) = dollar_an_hour(SPRING, 1).rows()
    midnight = parse_time("2026-03-28T23:00:00Z")
    whole = row._replace(begin=midnight - DAY, end=midnight)
    assert next(by_day([whole, row._replace(begin=midnight, end=midnight + HOUR)], BERLIN)) == whole
    assert local(midnight, BERLIN).date().isoformat() == "2026-03-29"
