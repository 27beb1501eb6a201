from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, strategies as st

from pricing_data.units import DAY, HOUR, MINUTE, to_datetime, to_micros
from spotctl.home.errors import BadRequest
from spotctl.nightly.hours import Hours, Night, local_zone, moment_of, time_of_day

NEW_YORK = ZoneInfo("America/New_York")
ZONES = (
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Asia/Kolkata",
    "UTC",
)

days = st.dates(date(2009, 1, 1), date(2030, 12, 31))
clock_times = st.times().map(lambda at: at.replace(second=0, microsecond=0))
zones = st.sampled_from(ZONES).map(ZoneInfo)


def utc(text: str) -> int:
    return to_micros(datetime.fromisoformat(text).replace(tzinfo=UTC))


def by_walking(day: date, at: time, zone: ZoneInfo) -> int:
    """Brute force, minute by minute: when does the local time first reach this time of day?"""
    local = datetime.combine(day, at)
    moment = datetime.combine(day, time(), UTC) - timedelta(hours=15)
    while True:
        here = moment.astimezone(zone).replace(tzinfo=None)
        if here.date() == day and here >= local:
            return to_micros(moment)
        moment += timedelta(minutes=1)


@pytest.mark.parametrize(
    ("day", "at", "when"),
    [
        (date(2026, 3, 7), time(2, 30), "2026-03-07 07:30"),
        # The local time jumps from 02:00 to 03:00: 02:30 means the moment of the change.
        (date(2026, 3, 8), time(2, 30), "2026-03-08 07:00"),
        (date(2026, 3, 8), time(6, 0), "2026-03-08 10:00"),
        # The local time goes from 02:00 back to 01:00: the first 01:30 is meant.
        (date(2026, 11, 1), time(1, 30), "2026-11-01 05:30"),
        (date(2026, 11, 1), time(2, 0), "2026-11-01 07:00"),
    ],
)
def test_times_of_day_on_days_with_a_time_change(day: date, at: time, when: str) -> None:
    assert moment_of(day, at, NEW_YORK) == utc(when)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "at", [time(0, 0), time(0, 30), time(1, 59), time(2, 15), time(2, 30), time(3, 0)]
)
def test_times_of_day_against_brute_force(zone: str, at: time) -> None:
    known = ZoneInfo(zone)
    changes = [
        day
        for day in (date(2017, 1, 1) + timedelta(days=ahead) for ahead in range(366))
        if moment_of(day, time(12), known) - moment_of(day - timedelta(days=1), time(12), known)
        != DAY
    ]
    for day in changes or [date(2017, 6, 1)]:
        assert moment_of(day, at, known) == by_walking(day, at, known)


@given(
    day=days,
    minute=st.integers(0, 1439),
    at=clock_times,
    deadline=st.none() | clock_times,
    zone=zones,
)
def test_every_moment_belongs_to_one_night(
    day: date, minute: int, at: time, deadline: time | None, zone: ZoneInfo
) -> None:
    now = to_micros(datetime.combine(day, time(), UTC)) + minute * MINUTE
    hours = Hours(at, deadline)
    night = hours.night(now, zone)
    assert night.begin == moment_of(night.day, at, zone) <= now < hours.next_begin(now, zone)
    assert hours.next_begin(night.begin, zone) == hours.next_begin(now, zone)
    if night.deadline is not None:
        assert deadline is not None
        assert night.begin < night.deadline <= night.begin + 2 * DAY
        assert to_datetime(night.deadline).astimezone(zone).time() >= deadline


@given(day=days, at=clock_times, zone=zones)
def test_timer_times_include_every_begin(day: date, at: time, zone: ZoneInfo) -> None:
    times = Hours(at).timer_times(moment_of(day, time(), zone), zone)
    assert times[0] == at
    for ahead in range(365):
        begin = moment_of(day + timedelta(days=ahead), at, zone)
        assert to_datetime(begin).astimezone(zone).time().replace(fold=0) in times


def test_the_length_of_a_night_with_a_time_change() -> None:
    spring = Hours(time(1), time(6)).night(utc("2026-03-08 09:00"), NEW_YORK)
    autumn = Hours(time(1), time(6)).night(utc("2026-11-01 09:00"), NEW_YORK)
    assert spring.deadline is not None
    assert autumn.deadline is not None
    assert (spring.deadline - spring.begin, autumn.deadline - autumn.begin) == (4 * HOUR, 6 * HOUR)


def test_a_night_across_midnight_belongs_to_the_day_on_which_it_begins() -> None:
    night = Hours(time(22), time(6)).night(utc("2026-05-02 03:00"), ZoneInfo("UTC"))
    assert (night.day, night.deadline) == (date(2026, 5, 1), utc("2026-05-02 06:00"))
    assert not night.is_over(utc("2026-05-02 05:58"))
    assert night.is_over(utc("2026-05-02 05:59"))


def test_pauses_double_until_the_night_is_over() -> None:
    night = Night(date(2026, 5, 1), 0, 4 * HOUR)
    assert [night.pause(attempt, 0) for attempt in (1, 2, 3, 6, 60)] == [
        MINUTE,
        2 * MINUTE,
        4 * MINUTE,
        30 * MINUTE,
        30 * MINUTE,
    ]
    assert night.pause(1, 4 * HOUR - 2 * MINUTE) is None
    assert Night(date(2026, 5, 1), 0, None).pause(6, 4 * HOUR - 30 * MINUTE) is None


@pytest.mark.parametrize("written", ["24:00", "2", "02:60", "2am", "", "02:00:00"])
def test_bad_times_of_day_are_errors(written: str) -> None:
    with pytest.raises(BadRequest, match="is not a time of day"):
        time_of_day(written, "--at")


def test_local_zone() -> None:
    zone, name = local_zone()
    assert name
    assert datetime.now(zone).utcoffset() is not None
