"""The shipped table of EC2's types."""

from __future__ import annotations

from pathlib import Path

from moto.ec2.models.instance_types import INSTANCE_TYPES

from bench.aws_machine_types import lines, recorded
from spotctl.clouds.aws import machine_types
from tests.spotctl.planning.test_offers import OPEN


def test_types_with_accelerators_have_the_network_that_ec2_says() -> None:
    """moto describes the types as EC2 does."""
    known = {name: row for name, row in INSTANCE_TYPES.items() if name in OPEN}
    assert len(known) > 800
    for name, row in known.items():
        if OPEN[name].accelerators or name.startswith("hpc"):
            is_fast = bool(row["NetworkInfo"].get("EfaSupported"))
            assert (machine_types.FABRIC[1].fullmatch(name) is not None) == is_fast, name


def test_the_shipped_table_is_what_ec2_says_of_every_type() -> None:
    truth = recorded()
    assert {machine.name: machine for machine in truth} == OPEN
    table = Path(machine_types.__file__).with_name("lists") / "machine_types.csv"
    shipped = table.read_text(encoding="utf-8").splitlines()
    assert list(lines(truth, shipped[1].partition(",")[0])) == shipped
