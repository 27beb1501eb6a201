"""The shipped table of EC2's types."""

from __future__ import annotations

from pathlib import Path

from bench.aws_machine_types import lines, recorded
from spotctl.clouds.aws import machine_types
from tests.spotctl.planning.test_offers import OPEN


def test_the_shipped_table_is_what_ec2_says_of_every_type() -> None:
    truth = recorded()
    assert {machine.name: machine for machine in truth} == OPEN
    table = Path(machine_types.__file__).with_name("lists") / "machine_types.csv"
    shipped = table.read_text(encoding="utf-8").splitlines()
    assert list(lines(truth, shipped[1].partition(",")[0])) == shipped
