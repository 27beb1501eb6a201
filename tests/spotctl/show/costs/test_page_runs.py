"""Single runs on the page of a report."""

from __future__ import annotations

from pricing_data.units import DAY, HOUR
from spotctl.log import events as ev
from spotctl.show.costs import page
from tests.spotctl.show.costs.made import AWS, NIGHT, MadeRun, report_of
from tests.spotctl.show.costs.test_page import EVIL, pages, read


def test_only_a_training_has_a_stage_and_only_evictions_have_marks() -> None:
    made = MadeRun("a-1", "a", NIGHT)
    made.begin()
    made.price(AWS[0], [NIGHT, NIGHT + DAY], [100_000_000] * 2)
    made.add(NIGHT, ev.RentIntended(1, AWS[0], 1, None, 100_000_000, 1.0, False, NIGHT + HOUR))
    made.add(NIGHT, ev.Rented(1, (ev.Granted("a", NIGHT),)))
    made.end_machines(["a"], NIGHT + HOUR, "returned")
    made.finish(NIGHT + HOUR, "done")
    assert "Machines by kind." in read(report_of([made])).texts
    assert "The band above shows the stage of a training." in " ".join(
        read(report_of(pages()["one"])).texts
    )


def test_messages_of_failed_runs_are_shown() -> None:
    made = MadeRun("a-1", "a", NIGHT)
    made.begin()
    made.finish(NIGHT + HOUR, "failed", message=f"no module named {EVIL}")
    assert f"a-1: failed. no module named {EVIL}" in " ".join(read(report_of([made])).texts)


def test_running_runs_are_marked() -> None:
    text = " ".join(read(report_of(pages()["running"])).texts)
    assert "1 run is still running" in text
    assert " so far." in text


def test_the_machines_of_a_job_that_shares_a_quota_are_next_to_those_of_its_plan() -> None:
    made = MadeRun("shared-1", "shared", NIGHT)
    made.begin()
    turns = ((NIGHT, 1), (NIGHT + 2 * HOUR, 3))
    made.add(NIGHT, ev.Planned(1.0, 0.8, 1.25, 4.0, 3.5, assumed=False, turns=turns))
    made.price(AWS[0], [NIGHT, NIGHT + DAY], [100_000_000] * 2)
    first, later = made.rent(AWS[0], 1, NIGHT), made.rent(AWS[0], 2, NIGHT + 3 * HOUR)
    made.end_machines([*first, *later], NIGHT + 5 * HOUR, "returned")
    made.finish(NIGHT + 5 * HOUR)
    text = page.html(report_of([made]))
    assert text.index("1, 3 after 2.0 h") < text.index("1, 3 after 3.0 h, 0 after 5.0 h")
