"""The work of a command job on one node: a program that goes on from its own checkpoint, wherever it is started."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spotctl.jobspec.job import Command
from spotctl.orchestrator.events import RentIntended
from spotctl.orchestrator.state import RunState
from spotctl.orchestrator.workload import DONE, FAILED, Verdict
from spotctl.providers.base import Machine, Payload

PAUSE = 0.1
GRACE = 10.0
"""Seconds for a program to write its checkpoint when its machine is given back."""


class CommandWork:
    """Done when the program ends with status 0; a failure of its own is the job's."""

    def __init__(
        self, command: Command, environment: Mapping[str, str], secrets: Mapping[str, str], workdir: Path
    ) -> None:
        self._command = command
        self._environment = environment
        self._secrets = secrets
        self._workdir = workdir

    def payload(self, order: RentIntended) -> Payload:  # noqa: ARG002 - the same on every machine
        """The command, by the shell."""
        environment = {**self._environment, "SPOTCTL_NODES": "1", "SPOTCTL_RANK": "0"}
        command = ("/bin/sh", "-c", self._command.run)
        return Payload("command", command, environment, str(self._workdir), grace_seconds=GRACE)

    def secrets(self) -> Mapping[str, str]:
        """Those that the job names."""
        return self._secrets

    def turn(self, state: RunState, machines: Sequence[Machine], now: int) -> Verdict:  # noqa: ARG002 - the work's protocol
        """Looks at how commands ended. One that was told that it will be evicted may end as it likes."""
        time.sleep(PAUSE)
        for machine in machines:
            held = state.machines.get(machine.id)
            if machine.exit_code is None or held is None or held.returning or machine.warned_until is not None:
                continue
            if machine.exit_code == 0:
                return Verdict(outcome=DONE, message="the command has ended")
            if held.alive:
                how = f"ended with status {machine.exit_code} on {machine.id}; spotctl logs shows what it said"
                return Verdict(outcome=FAILED, message=f"the command {how}")
        return Verdict()

    def facts(self) -> Mapping[str, Any]:
        """Nothing that is not in the program's own files."""
        return {}

    def close(self) -> None:
        """Nothing of it runs here."""
