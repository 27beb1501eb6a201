"""Jobs that share the local market: one clock for all."""

from __future__ import annotations

from pricing_data.units import parse_time
from spotctl.files.job.reader import from_fields
from spotctl.files.job.spec import JobSpec
from spotctl.run.local_market import on_one_market


def job(name: str, clouds: tuple[str, ...] = ("local",), **local: object) -> JobSpec:
    described = {"name": name, "kind": "command", "run": "true", "resources": {"clouds": list(clouds)}}
    return from_fields({**described, "local": local} if local else described)


def test_the_first_start_and_the_lowest_speed_hold_for_all() -> None:
    asked = [
        job("a", speed=600),
        job("b", start="2026-01-20T00:00:00Z", speed=60),
        job("c", start="2026-01-25T00:00:00Z"),
    ]
    shared, (remark,) = on_one_market(asked)
    start = parse_time("2026-01-20T00:00:00Z")
    assert [(one.name, one.local.start, one.local.speed) for one in shared] == [(name, start, 60) for name in "abc"]
    assert remark == "the jobs share one local market, which runs at speed 60 from 2026-01-20T00:00:00Z on"


def test_jobs_that_agree_or_that_are_alone_stay_as_they_are() -> None:
    for asked in (
        [job("a", speed=60)],
        [job("a", speed=60), job("b", speed=60, seed=4)],
        [job("a", ("aws",)), job("b")],
    ):
        assert on_one_market(asked) == (asked, ())
