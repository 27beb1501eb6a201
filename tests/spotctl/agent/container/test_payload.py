"""A request that an earlier version has sent is the same one when this version repeats it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pricing_data.market import Market
from spotctl.agent.container.payload import NODE, NodeTask, Payload
from spotctl.agent.container.processes import BEHIND_SETUP, WITH_SETUP
from spotctl.agent.layout import SETUP_VARIABLE, TASK_VARIABLE
from spotctl.clouds.provider import MachineRequest, fingerprint, same_request

MARKET = Market("gcp", "us-east1", "us-east1-b", "n1-standard-4")
TASK = NodeTask("prepare", setup="pip install .").to_json()
START, FORMER_START = ("python3", "-P", "-c", NODE), ("python3", "-P", "-m", "spotctl.agent.node")
SETUP, FORMER_SETUP = BEHIND_SETUP, ("/bin/sh", "-c", WITH_SETUP, "setup", "pip install .")

PAIRS = [
    (
        Payload("prepare", (*START, "prepare"), {TASK_VARIABLE: TASK}, "/job"),
        Payload("prepare", (*FORMER_START, "prepare", TASK), {}, "/job"),
    ),
    (
        Payload(
            "node",
            (*SETUP, "python3", "node"),
            {"OMP": "1", SETUP_VARIABLE: "pip install ."},
            "/job",
        ),
        Payload("node", (*FORMER_SETUP, "python3", "node"), {"OMP": "1"}, "/job"),
    ),
    (
        Payload(
            "node",
            (*START, "become", *SETUP, "node"),
            {TASK_VARIABLE: TASK, SETUP_VARIABLE: "pip install ."},
            "/job",
        ),
        Payload("node", (*FORMER_START, "become", TASK, *FORMER_SETUP, "node"), {}, "/job"),
    ),
]


def test_a_request_of_an_earlier_version_is_repeated_as_the_same_one() -> None:
    for now, former in PAIRS:
        assert now.in_former_words() == former.in_former_words() == former.to_json()
        first = MachineRequest("run-1", MARKET, 2, 10**8, 10**15, {"run": "run"}, former)
        again = replace(first, payload=now, lease_until=2 * 10**15)
        assert same_request(first, again)
        assert fingerprint(first) == fingerprint(again)
        other = replace(first, payload=replace(now, name="another"))
        assert not same_request(first, other)


def test_what_a_program_is_given_stays_in_its_words() -> None:
    plain = Payload("exec", ("sh", "-c", str(Path.cwd())), {"A": "1"})
    assert plain.in_former_words() == plain.to_json()
