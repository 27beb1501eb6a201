"""Which machine types suit a job: over all types that EC2 has, and rule by rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.aws_machine_types import lines, recorded
from pricing_data.catalog import InstanceType, MachineTraits, shipped_types
from spotctl.clouds.aws import machine_types
from spotctl.files.job.reader import loads
from spotctl.files.job.spec import JobSpec
from spotctl.planning.candidates import speeds_of
from spotctl.planning.offers import why_unsuitable
from tests.spotctl.planning.worlds import NOW

JOB = "name: job\nkind: command\nrun: echo\nresources: {{clouds: [aws{clouds}]{more}}}\n{rest}"
OPEN = {machine.name: machine for machine in shipped_types() if machine.cloud == "aws"}


def job(more: str = "", rest: str = "", clouds: str = ", gcp, azure") -> JobSpec:
    return loads(JOB.format(more=f", {more}" if more else "", rest=rest, clouds=clouds), Path(__file__))


def why(name: str, more: str = "", rest: str = "") -> str:
    return why_unsuitable(OPEN[name], job(more, rest), NOW)


def test_the_shipped_table_is_what_ec2_says_of_every_type() -> None:
    truth = recorded()
    assert {machine.name: machine for machine in truth} == OPEN
    table = Path(machine_types.__file__).with_name("lists") / "machine_types.csv"
    shipped = table.read_text(encoding="utf-8").splitlines()
    assert list(lines(truth, shipped[1].partition(",")[0])) == shipped


@pytest.mark.parametrize("arch", ["", "arm64", "any"])
@pytest.mark.parametrize("burstable", ["", "true"])
def test_of_all_types_those_suit_that_a_practitioner_would_take(arch: str, burstable: str) -> None:
    more = ", ".join(f"{key}: {value}" for key, value in (("arch", arch), ("burstable", burstable)) if value)
    asked = job(more)
    for record in recorded():
        suits = not why_unsuitable(OPEN[record.name], asked, NOW)
        family = record.name.partition(".")[0]
        allowed = {"": {"x86_64"}, "arm64": {"arm64"}, "any": {"x86_64", "arm64"}}[arch]
        expected = (
            record.traits.architecture in allowed
            and record.memory_gib >= 2
            and (bool(burstable) or family not in ("t2", "t3", "t3a", "t4g"))
            and record.traits.spot
            and record.accelerator != "V100"
            and record.traits.hypervisor != "xen"
        )
        assert suits == expected, record.name


def test_a_burstable_type_is_as_fast_as_its_baseline() -> None:
    types = [OPEN[name] for name in ("t4g.nano", "t3.xlarge", "t2.micro", "m6i.large")]
    speeds = {name: speed.nu for name, speed in speeds_of(types, {}).items()}
    assert speeds == {"t4g.nano": 0.1, "t3.xlarge": 1.6, "t2.micro": 0.1, "m6i.large": 2.0}


@pytest.mark.parametrize(
    ("name", "more", "rest", "problem"),
    [
        ("t4g.nano", "", "", "arm64, and the job x86_64 (resources: {arch: arm64}, or any)"),
        ("t4g.nano", "types: [t4g.nano]", "", "arm64, and the job x86_64"),
        ("t4g.nano", "types: [t4g.nano], arch: any", "", ""),
        ("t4g.nano", "types: [t4g.*], arch: any", "", "0.5 GiB, and the job needs 2"),
        ("t4g.nano", "types: [t4g.nano], arch: any, memory: 1 GiB", "", "0.5 GiB, and the job needs 1"),
        ("t3.nano", "memory: 512 MiB", "", "burstable: it may use 5% of its vCPUs all the time"),
        ("t3.nano", "memory: 512 MiB, burstable: true", "", ""),
        ("t3.large", "types: ['*.large']", "", "burstable"),
        ("m4.large", "", "", "its console is shown minutes late"),
        ("m4.large", "types: ['*.large']", "", "its console is shown minutes late"),
        ("m4.large", "types: ['m4.*']", "", ""),
        ("t3.large", "types: ['t3.*']", "", ""),
        ("t3.large", "types: [t3.large], burstable: false", "", "burstable"),
        ("t3.large", "types: [t3.large], placement: close", "nodes: 2", "such machines are not placed close together"),
        ("c6i.large", "types: [c6i.large], placement: close", "nodes: 2", ""),
        ("m6i.large", "memory: 16 GiB", "", "8 GiB, and the job needs 16"),
        ("c6i.large", "types: {memory_gib: 4..}", "", ""),
        ("p3dn.24xlarge", "", "", "no driver for its V100; name an image that does (image: {ami: ...})"),
        ("p3dn.24xlarge", "", "image: {ami: ami-0123456789abcdef0}", ""),
        ("mac1.metal", "arch: any", "strategy: on-demand", "no image of Linux runs on a Mac"),
        ("g5.xlarge", "", "", ""),
        ("hpc6a.48xlarge", "", "", "sells it only on demand"),
        ("hpc6a.48xlarge", "", "strategy: on-demand", ""),
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
