"""The output of rented machines, which is there when the machines are gone."""

from __future__ import annotations

from pathlib import Path

from spotctl.agent.output_times import parse_times
from spotctl.clouds.base import MachineRequest, Payload
from spotctl.run.kept_output import KeptOutput
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
