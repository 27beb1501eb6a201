"""Nights on the local market: their money is replayed, is called so, and is in no sum with what a
cloud billed.
"""

from __future__ import annotations

from pathlib import Path

from pricing_data.units import DAY, HOUR
from spotctl.home.config import Settings
from spotctl.nightly.reporting import write_report
from tests.spotctl.show.costs.made import LOCAL, NIGHT, NOW, MadeRun, write_log


def made_run(run: str, provider: str, began: int) -> MadeRun:
    made = MadeRun(run, "a", began, provider=provider)
    made.begin()
    if provider == "local":
        made.price(LOCAL, [began, began + DAY], [100_000_000] * 2)
        made.end_machines(made.rent(LOCAL, 1, began), began + HOUR, "returned")
    made.finish(began + HOUR, clocks=10)
    return made


def test_a_local_night_of_a_job_that_ran_on_a_cloud_has_its_report(tmp_path: Path) -> None:
    write_log([made_run("a-0", "aws", NIGHT - DAY), made_run("a-1", "local", NIGHT)], tmp_path)
    answer = write_report(Settings(tmp_path), "a", NIGHT, NOW, tmp_path / "costs.html")
    assert [group["run"] for group in answer["groups"]] == ["a-1"]
    assert answer["replayed"]["reported"] is True
    assert "replayed, not billed" in (tmp_path / "costs.html").read_text()
    assert "replayed, not billed" in answer["markdown"].replace("\\", "")
