"""The connection to one machine: opened and prepared in the background, and opened again after a
loss.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from pricing_data.errors import PricingDataError
from spotctl.agent import layout
from spotctl.clouds.boot import BootSign
from spotctl.clouds.errors import ErrorAction, ProviderError, Unanswered, Unusable, action_for
from spotctl.clouds.link import MachineSupplies, ReverseTunnel
from spotctl.clouds.remote.home import RemoteHome
from spotctl.clouds.remote.machine_setup import Bringing, Spreading
from spotctl.clouds.remote.ssh import (
    HostKeyDiffers,
    SshConnection,
    SshHost,
    StepFailed,
    host_key_of,
)
from spotctl.home.errors import SpotctlError

USER = "spotctl"
"""The user that the start-up script creates: it runs the payloads, and the launcher logs in as
it."""

WAIT_SECONDS = 2.0
"""How long a call on a link waits for a connection: not long, because the caller serves all
machines in turn."""

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 8.0
"""Pauses between attempts, each twice as long as the last."""

FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 5.0, 60.0
"""Pauses before asking the cloud again whether a machine that does not answer is gone, each twice
as long as the last. A run asks in every turn of its loop, and clouds limit calls. The clouds' lists
of machines also show gone machines."""


_KEY_KNOWN = "host key"
"""The sign of a console that has shown all that is wanted of it: it is read no more."""

_COPY_SIGN_SECONDS = 30.0
"""How often a copy to a machine counts as a sign, also if another machine gets the same first."""

_EXTEND_SECONDS = 15.0
_EXTEND = """
[ ! -e {root}/agent/started ] && up=$(cut -d. -f1 /proc/uptime) || exit 1
echo "$(($(date +%s) + {seconds})) $((up + {seconds}))" >{lease}.new && mv {lease}.new {lease}
"""


@dataclass(frozen=True, slots=True)
class RemoteMachine:
    """A machine that boots with our start-up script. `index` is its number within its request, from
    0.

    `console` returns the console output that the cloud shows by now, which proves the machine's ssh
    host key, or raises an error of a provider. `gone` says whether the cloud has ended the machine.
    Both are called from threads of `RemoteAgents`.
    """

    id: str
    index: int
    host: str
    port: int
    console: Callable[[], str]
    gone: Callable[[], bool]
    user: str = USER


def judged(failure: ProviderError | None, last: ProviderError | None) -> ProviderError | None:
    """A failure of a machine's preparation: final if it is the second of its kind in a row, and no
    known delay.
    """
    if failure is None or not (
        isinstance(failure, StepFailed) or action_for(failure) is ErrorAction.STOP_IF_REPEATED
    ):
        return failure
    if not isinstance(last, type(failure)) and not isinstance(last, Unusable):
        return failure
    return Unusable(f"{failure}: twice in a row, so another machine like it would fail as well")


class MachineConnection:
    """This process's use of one machine over ssh. At most one background thread works at a time."""

    def __init__(
        self,
        machine: RemoteMachine,
        number: int,
        home: RemoteHome,
        turn: threading.Semaphore,
        spreading: Spreading,
    ) -> None:
        self.machine = machine
        self._home, self._turn, self._number, self._clients = home, turn, number, count()
        self._spreading = spreading
        self._control, self._socket = home.sockets / f"{number}.c", home.sockets / f"{number}.a"
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self._ssh: SshConnection | None = None
        self._closed = False
        self._progress = self._console = ""
        self._brings = False
        self._failure: ProviderError | None = None
        self._not_before, self._pause = 0.0, FIRST_PAUSE_SECONDS
        self._prepared: SshConnection | None = None
        self._tunnels: tuple[ReverseTunnel, ...] = ()
        self._gone, self._look_at, self._look_pause = False, 0.0, FIRST_LOOK_SECONDS

    def gone(self) -> bool:
        """Whether the cloud has ended the machine, as of up to a minute ago. False if the cloud
        does not answer.
        """
        if not self._gone and time.monotonic() >= self._look_at:
            self._look_at = time.monotonic() + self._look_pause
            self._look_pause = min(2 * self._look_pause, LONGEST_LOOK_SECONDS)
            with suppress(ProviderError):
                self._gone = self.machine.gone()
            if self._gone:
                self.close()
        return self._gone

    def prepare(self, supplies: MachineSupplies, bring: Callable[[Bringing], None]) -> None:
        """Connects and prepares the machine in the background; does nothing if that is done or
        under way.
        """

        self._tunnels = supplies.reach
        done = self._prepared
        if (
            done is not None
            and done is self._ssh
            and done.is_open
            and done.reached.issuperset(supplies.reach)
        ):
            return

        self._begin(partial(self._connect, bring))

    def address(self) -> Path:
        """The local end of the agent's socket. Unanswered, with the reason, while there is no
        connection.

        Unusable: there will never be one.
        """
        if self._idle.is_set() and not self._is_open:
            self._begin(self._connect)
            self._idle.wait(WAIT_SECONDS)

        # A prepared machine stays reachable even if something else, such as a tunnel, fails or
        # takes time.
        if self._is_open and self._prepared is self._ssh:
            return self._socket
        if not self._idle.is_set():
            raise Unanswered(f"{self.machine.id}: {self._progress}; try again")

        if self._failure is not None:
            raise (Unusable if isinstance(self._failure, Unusable) else Unanswered)(
                str(self._failure)
            )
        if not self._is_open:
            raise Unanswered(f"{self.machine.id}: the connection was lost; try again")

        return self._socket

    def boot_sign(self) -> BootSign:
        """How far the machine's boot has come. While something is copied to it, the open connection
        is a sign.
        """
        if self._brings and self._is_open:
            copies = (
                ""
                if self._idle.is_set()
                else f"{self._progress}, {time.monotonic() // _COPY_SIGN_SECONDS:.0f}"
            )
            return BootSign("packages", copies)
        if self._is_open:
            return BootSign("ssh")

        return BootSign("console", self._console) if self._console else BootSign("running")

    def extend_lease(self, seconds: float) -> bool:
        """Extends the lease of a machine that is connected, and whose agent has not started;
        whether it has.

        The machine's watchdog reads the lease. Once the agent runs, it is the agent's.
        """
        ssh = self._ssh
        if ssh is None or not ssh.is_open or self._prepared is ssh:
            return False

        try:
            ssh.run(
                _EXTEND.format(root=layout.ROOT, lease=layout.LEASE, seconds=int(seconds)),
                seconds=_EXTEND_SECONDS,
            )
        except ProviderError:
            return False

        return True

    @property
    def _is_open(self) -> bool:
        return self._ssh is not None and self._ssh.is_open

    def close(self) -> None:
        with self._lock:
            self._closed = True
        if self._ssh is not None:
            self._ssh.close()

    def _begin(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._closed or not self._idle.is_set() or time.monotonic() < self._not_before:
                return
            self._idle.clear()
            self._progress = "waiting for its turn"
        threading.Thread(
            target=self._work, args=(work,), name=f"ssh {self.machine.id}", daemon=True
        ).start()

    def _work(self, work: Callable[[], None]) -> None:
        failure: ProviderError | None = None
        try:
            work()
        except ProviderError as error:
            failure = error
        except (SpotctlError, PricingDataError, OSError, ValueError) as error:
            failure = ProviderError(f"{self.machine.id}: {error}")
        finally:
            if failure is not None:
                self._not_before = time.monotonic() + self._pause
                self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
            else:
                self._pause = FIRST_PAUSE_SECONDS
            self._failure = judged(failure, self._failure)
            self._idle.set()
            if self._closed and self._ssh is not None:
                self._ssh.close()

    def _connect(self, bring: Callable[[Bringing], None] | None = None) -> None:
        """Opens the connection, prepares the machine if that is asked for and not done, and opens
        the tunnels that were last requested, which end with their connection.
        """
        ssh = self._ssh
        if ssh is None or not ssh.is_open:
            if ssh is not None:
                ssh.close()
                self._ssh = None

            with self._turn:
                host = self.host()
                self._progress = "connecting over ssh"
                try:
                    ssh = self._ssh = SshConnection(host, self._control, self._socket)
                except HostKeyDiffers:
                    # The next attempt looks at the console again.
                    host.known_hosts.unlink(missing_ok=True)
                    raise

            # If the connection is lost, the cloud is asked at once.
            self._look_at, self._look_pause = 0.0, FIRST_LOOK_SECONDS

        if bring is not None and self._prepared is not ssh:
            bring(Bringing(self.machine.id, ssh, self._spreading, self._note_step))
        if bring is not None or self._prepared is not None:
            self._prepared = ssh

        self._progress = "opening tunnels"
        ssh.reach(self._tunnels)

    def host(self) -> SshHost:
        """How to reach the machine. Unanswered: its console does not show its host key yet."""
        name = hashlib.sha256(self.machine.id.encode()).hexdigest()[:32]
        known = self._home.known_hosts / name
        if not known.exists():
            self._progress = "waiting for its console to show its ssh host key"
            console = self.machine.console()
            # Of a long console, clouds show the end.
            shown = hashlib.sha256(console.encode()).hexdigest()[:8]
            self._console = shown if console.strip() else ""
            key = host_key_of(console)
            if key is None:
                problem = (
                    f"{self.machine.id}: still booting (its console does not show its ssh host "
                    "key yet); try again"
                )
                raise Unanswered(problem)

            new = known.with_name(f".{name}.{threading.get_ident()}")
            new.write_text(f"machine {key}\n")
            new.replace(known)

        self._console = _KEY_KNOWN
        # The cloud may have listed a new address while its console was asked.
        machine = self.machine
        return SshHost(machine.id, machine.host, machine.port, machine.user, self._home.key, known)

    def messages_file(self) -> Path:
        """A file for the messages of the client of one more connection."""
        return self._home.sockets / f"{self._number}.{next(self._clients)}.e"

    def _note_step(self, progress: str) -> None:
        self._brings, self._progress = True, progress
