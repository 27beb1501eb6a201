"""Answers of a machine that was taken over: each is an error of this machine, and no crash or
memory without end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pricing_data.market import Market
from pricing_data.units import format_time
from spotctl.agent.container.payload import Payload
from spotctl.clouds import link
from spotctl.clouds.errors import ProviderError
from spotctl.clouds.link import AgentLink, whole
from spotctl.clouds.provider import CloudProvider, Machine, MachineState
from spotctl.home.errors import SpotctlError
from spotctl.log.state import RunState
from spotctl.run.machine_output import KeptOutput, RunOutput, last_lines
from tests.spotctl.clouds.hostile import MACHINE, SECRET, HostileMachine, forget_peak, peak_bytes

MAX_BYTES = 200 << 20
CLOCK = SimpleNamespace(speed=1.0, now=lambda: 10**15)

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux does")]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "CALL_SECONDS", 0.2)


def asked(seed: int, folder: Path) -> list[str]:
    """Asks a hostile machine everything that a launcher asks; returns the errors, all of this
    machine.
    """
    hostile = HostileMachine(seed)
    found = AgentLink(lambda: hostile.address, MACHINE, SECRET, CLOCK, lambda: False)
    provider = cast(
        "CloudProvider",
        SimpleNamespace(
            link=lambda _: found,
            boot_sign=lambda _: None,
            output=lambda _, after=0: whole(found.output, after),
            output_times=lambda _, after=0: whole(found.output_times, after),
        ),
    )
    market = Market.parse("aws/us-east-1/us-east-1a/m5.large")
    machine = Machine(MACHINE, market, None, MachineState.RUNNING, 0, {})
    kept, errors = KeptOutput(folder), list[str]()
    environment = cast(
        "Any", SimpleNamespace(output=folder, provider=provider, redacted=lambda text: text)
    )
    run = RunOutput.__new__(RunOutput)
    run._source, run._on_ray, run._readings = kept, False, {}
    state = cast(
        "RunState",
        SimpleNamespace(machines={MACHINE: SimpleNamespace(id=MACHINE, started=0, alive=True)}),
    )

    def show() -> None:
        for line in islice(run.new_lines(state, last=False), 200_000):
            assert line.at is None or format_time(line.at)

    requests: list[Callable[[], object]] = [
        lambda: CloudProvider.with_status(
            provider, machine, lambda error: errors.append(str(error))
        ),
        lambda: found.assign(Payload("w", ("true",))),
        lambda: found.renew(10**15 + 1),
        lambda: kept.fetch(provider, MACHINE, now=True),
        show,
        lambda: last_lines(environment, MACHINE),
        lambda: found.exec(["true"]),
    ]
    try:
        for request in (*requests, *requests[:3]):
            found._silent_until = 0.0
            try:
                result = request()
            except SpotctlError as error:
                errors.append(str(error))
            else:
                if isinstance(result, Machine) and result.warned_until is not None:
                    format_time(result.warned_until)
    finally:
        found.close()
        hostile.close()
    return errors


def check(seed: int, folder: Path) -> int:
    before = forget_peak()
    for error in asked(seed, folder):
        assert MACHINE in error, error
        assert len(error) < 600
        error.encode()
    grown = peak_bytes() - before
    assert grown < MAX_BYTES, f"{grown >> 20} MiB"
    return grown


@pytest.mark.sampled(15)
@pytest.mark.parametrize("seed", range(60))
def test_a_hostile_machine_neither_stops_nor_fills_the_launcher(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_hundreds_of_hostile_machines(tmp_path: Path) -> None:
    print(  # noqa: T201
        f"{max(check(seed, tmp_path / str(seed)) for seed in range(1000, 1200)) >> 20} MiB at most"
    )


def test_a_command_that_prints_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = HostileMachine(0)
    hostile._hostile_greeting, hostile.way = False, hostile._flooded
    monkeypatch.setattr(hostile._rng, "random", lambda: 0.0)
    monkeypatch.setattr(link, "CALL_SECONDS", 10.0)
    found = AgentLink(lambda: hostile.address, MACHINE, SECRET, CLOCK, lambda: False)
    with pytest.raises(ProviderError, match="prints more than 32 MiB: redirect"):
        found.exec(["yes"])
    hostile.close()
