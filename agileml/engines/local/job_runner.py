"""The provider of machines of one job: starts them, warns them, takes them away, and listens to the controller."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from agileml.engines.local.fork_server import Gone
from agileml.engines.local.processes import Machines
from agileml.engines.script import Act, Evict, Join, KillController, KillNodes, Machine, Script
from agileml.errors import Unrecoverable
from agileml.job import Listener
from agileml.protocol.actions import CONTROLLER
from agileml.runtime.controller_client import ControllerClient, Result
from agileml.runtime.node_process import REFUSED
from agileml.runtime.results import Clocks
from agileml.runtime.role_specs import ControllerRole, NodeRole

LOOK_EVERY = 0.02
"""Seconds between looks at deadlines and at processes that have ended."""

GOOD_BYE = 2.0
"""Seconds that nodes are given to leave when the job is done."""

RESTARTS = 5
"""How often a process may be started in another's place without a clock finished in between."""


class JobRunner:
    """One job's machines. `node` is what a machine is told, but for its name and kind."""

    def __init__(
        self, machines: Machines, controller: ControllerRole, node: NodeRole, script: Script, listener: Listener
    ) -> None:
        self._machines = machines
        self._controller_role = controller
        self._node_role = node
        self._script = script
        self._client = ControllerClient(controller.rendezvous, Clocks(listener))
        self._running: dict[str, Machine] = {}
        self._numbers = count()
        self._began = time.monotonic()
        self._restarts = 0
        self._story = ""

    def run(self) -> Result:
        """Until the job is done; raises if it cannot be."""
        try:
            self._machines.start(CONTROLLER, self._controller_role)
            self._join(Join(self._controller_role.reliable, reliable=True))
            self._join(Join(self._controller_role.transient))
            while (result := self._client.result) is None:
                self._turn()
            self._see_off()
        finally:
            self._client.close()
        return result

    def _turn(self) -> None:
        for _ in self._client.listen(self._client.next_deadline(LOOK_EVERY)):
            self._restarts = 0
            self._ask()
        self._bury()
        self._kill(self._client.due())
        self._ask()

    # -- what is done to the job -------------------------------------------------------------------------------------

    def _ask(self) -> None:
        if self._client.result is None:
            seconds = time.monotonic() - self._began
            for act in self._script.due(self._client.clocks.last, seconds, tuple(self._running.values())):
                self._do(act)

    def _do(self, act: Act) -> None:
        match act:
            case Evict():
                for name in act.names:
                    self._warn(name, act.seconds)
            case KillNodes():
                self._kill(act.names)
            case Join():
                self._join(act)
            case KillController():
                self._restarts -= 1
                self._machines.kill(CONTROLLER)

    def _join(self, act: Join) -> None:
        for _ in range(act.count):
            name = f"{'r' if act.reliable else 't'}{next(self._numbers)}"
            self._running[name] = Machine(name, act.reliable, warned=False)
            self._machines.start(name, replace(self._node_role, name=name, reliable=act.reliable))

    def _warn(self, name: str, seconds: float) -> None:
        if name in self._running and not self._client.is_warned(name):
            self._running[name] = replace(self._running[name], warned=True)
            self._client.warn(name, seconds)

    def _kill(self, names: Sequence[str]) -> None:
        for name in names:
            if name in self._running:
                self._machines.kill(name)
                self._lose(name)

    def _lose(self, name: str) -> None:
        """A machine is gone. Reliable means that another takes its place, as a provider of such machines does."""
        self._client.lose(name)
        if self._forget(name).reliable:
            self._join(Join(1, reliable=True))

    def _forget(self, name: str) -> Machine:
        self._client.forget(name)
        return self._running.pop(name)

    # -- processes that have ended -----------------------------------------------------------------------------------

    def _bury(self) -> None:
        for gone in self._machines.gone():
            if gone.name == CONTROLLER:
                self._check_restarts(gone)
                self._machines.start(CONTROLLER, self._controller_role)
            else:
                if gone.name in self._running:
                    self._went(gone)
                self._machines.forget(gone.name)
        if not self._running and self._client.result is None:
            raise Unrecoverable(f"no machine is left, and none is to come; {self._story or 'all were taken away'}")

    def _went(self, gone: Gone) -> None:
        """A process has ended that was not killed here."""
        self._story = f"{gone.name} ended with status {gone.status}: {self._machines.last_words(gone.name)}"
        if gone.status == REFUSED or self._running[gone.name].warned:
            left = self._forget(gone.name)
            if left.warned and left.reliable:
                self._join(Join(1, reliable=True))
            return
        if self._running[gone.name].reliable:
            self._check_restarts(gone)
        self._lose(gone.name)

    def _check_restarts(self, gone: Gone) -> None:
        self._restarts += 1
        if self._restarts > RESTARTS:
            raise Unrecoverable(
                f"{gone.name} is the last of {self._restarts} processes that ended without a clock finished in between,"
                f" with status {gone.status}: {self._machines.last_words(gone.name)}"
            )

    def _see_off(self) -> None:
        """Nodes leave by themselves; what has not by then is killed with the host."""
        until = time.monotonic() + GOOD_BYE
        while self._running and time.monotonic() < until:
            for _ in self._client.listen(LOOK_EVERY):
                pass
            for gone in self._machines.gone():
                self._running.pop(gone.name, None)
