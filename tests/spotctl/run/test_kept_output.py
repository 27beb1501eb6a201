"""The output of rented machines, which is there when the machines are gone."""

from __future__ import annotations

import os
import time
from pathlib import Path

from spotctl.agent.output_times import parse_times
from spotctl.clouds.base import MachineRequest, Payload
from spotctl.home.paths import KEPT_DAYS
from spotctl.run.kept_output import KeptOutput, delete_old
from tests.spotctl.run.worlds import MARKETS, START, life


def test_what_a_machine_printed_is_kept_beyond_its_life(tmp_path: Path) -> None:
    cloud = life(tmp_path).cloud
    request = MachineRequest("t", MARKETS[0], 1, None, START + 10**10, payload=Payload("p", ("p",)))
    (machine,) = cloud.create(request)
    kept = KeptOutput(tmp_path / "output")
    assert kept.output(machine.id) == b""
    for part in (b"first\n", b"second\n"):
        cloud.print(machine.id, part)
        kept.fetch(cloud, machine.id, now=True)
    # Too early to ask again.
    cloud.print(machine.id, b"third\n")
    kept.fetch(cloud, machine.id)
    cloud.terminate([machine.id])
    later = KeptOutput(tmp_path / "output")
    assert later.output(machine.id, after=6) == b"second\n"
    assert list(parse_times(later.output_times(machine.id))) == [(6, START), (13, START)]
    assert {file.stat().st_mode & 0o077 for file in (tmp_path / "output").iterdir()} == {0}


def test_old_output_is_deleted_and_results_stay(tmp_path: Path) -> None:
    now, days = time.time(), 86400.0
    for run, age in (("old", KEPT_DAYS + 1), ("new", KEPT_DAYS - 1)):
        for name in ("model.npz", "output/m-1", "output/m-1.times", "output/mine.txt"):
            path = tmp_path / run / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.utime(path, (now - age * days, now - age * days))
    delete_old(tmp_path, now)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    results = {f"{run}/{name}" for run in ("old", "new") for name in ("model.npz", "output/mine.txt")}
    assert left == results | {"new/output/m-1", "new/output/m-1.times"}
