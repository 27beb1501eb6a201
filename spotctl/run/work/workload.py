"""`Workload`: the work of a run's machines, a training or a command, as the service loop drives it.

Both may need a container, and a training needs copies of its data for its runner, which builds the
trainer once to learn the shape of the model.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from spotctl.agent.container.payload import Payload
from spotctl.agent.container.podman import NO_CONTAINER, Container
from spotctl.agent.data.locations import StoreIdentity
from spotctl.agent.data.transfer import local_copy, patiently
from spotctl.agent.errors import AgentError
from spotctl.agent.layout import PYTHON_VARIABLE
from spotctl.clouds.link import MachineSupplies
from spotctl.clouds.provider import Machine
from spotctl.files.job.spec import JobSpec
from spotctl.home.callbacks import unheard
from spotctl.home.errors import BadRequest
from spotctl.log.events import Event, Progressed, RentIntended
from spotctl.log.state import RunState

_NEEDED = "cloudpickle, cryptography, msgspec, numpy"

_CHECK = f"""\
need=${{{PYTHON_VARIABLE}:-$1}}
if ! why=$(python3 -c "import sys; assert sys.version.startswith('$need.'), sys.version; import {_NEEDED}" 2>&1); then
  why=$(echo "$why" | tail -n 1)
  echo "spotctl: image.container: a training's nodes need Python $need and glibc in the image: $why" >&2
  exit {NO_CONTAINER}
fi
shift
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class WorkReport:
    """How far the work is after a turn.

    `outcome` is set once the work is over. `idle_machines` will do nothing any more. `events`
    happened since the last turn, and go to the log. `share_done` is the finished share of all the
    work, from 0 to 1, where it is known.
    """

    progress: Progressed | None = None
    outcome: str | None = None
    message: str = ""
    idle_machines: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    share_done: float | None = None


class Workload:
    """The work of one run. Its state outlives its process, so that another process can resume the
    run.

    Without more, it is the work of machines that have none.
    """

    def payload(self, order: RentIntended) -> Payload | None:  # noqa: ARG002
        """The payload of an order's machines: the same for the same order in every process."""
        return None

    def supplies(self) -> MachineSupplies:
        """Supplies that the machines need besides their payload; never written where others can
        read them.
        """
        return MachineSupplies()

    def turn(self, state: RunState, machines: Sequence[Machine], now: int) -> WorkReport:  # noqa: ARG002
        """Reacts to machines that run, are warned or are gone. Returns within about a second."""
        return WorkReport()

    def facts(self) -> Mapping[str, Any]:
        """The facts about the work that the end of the run records."""
        return {}

    def store(self, outcome: str) -> None:
        """Stores the results of a run with this outcome, once its machines are returned. May be
        called again.

        Raises TransferFailed if they cannot be stored now; its message says where they lie. Any
        other AgentError says that something is missing without which they are still of use.
        """

    def close(self) -> None:
        """Ends the workload's own processes on this computer."""


def container_of(spec: JobSpec) -> Container | None:
    """The container for a job's payloads; None if they run directly on the machine."""
    image = spec.image
    if image.container is None:
        return None
    return Container(image.container, image.login or "", spec.secrets)


def checked(node: Sequence[str]) -> list[str]:
    """The command of a training's node behind a check of its Python: the node gets packages for its
    machine's Python, or on the local market for this computer's."""
    return [
        "/bin/sh",
        "-c",
        _CHECK,
        "check",
        f"{sys.version_info.major}.{sys.version_info.minor}",
        *node,
    ]


def check_podman(spec: JobSpec) -> None:
    """Refuses a container on the local market of a computer without podman. Rented machines get
    it."""
    if spec.is_local and spec.image.container is not None and shutil.which("podman") is None:
        raise BadRequest(
            f"{spec.name}: image.container needs podman, and this computer has none; install it "
            "(on Debian: apt install podman uidmap), or remove image.container"
        )


class DataHere:
    """Copies data in a thread: it may take longer than a lease, and the run renews leases in its
    turns.
    """

    def __init__(
        self,
        data: Mapping[str, str],
        cache: Path,
        who: StoreIdentity,
        near: Mapping[str, str] | None = None,
    ) -> None:
        """`data` are the places by environment variables, and `near` those of copies that are read
        if they exist.
        """
        self._data = data
        self._cache = cache
        self._who = who
        self._near = near or {}
        self._thread: Thread | None = None
        self._copies: dict[str, str] = {}
        self._failure: AgentError | None = None

    def copies(self) -> Mapping[str, str] | None:
        """The paths by environment variables, None while data is still being copied. The first call
        begins.

        TransferFailed: the data does not exist, or cannot be copied.
        """
        if self._thread is None and self._data:
            # A daemon: a process whose run was stopped does not wait for it.
            self._thread = Thread(target=self._copy, name="data", daemon=True)
            self._thread.start()

        if self._thread is not None and self._thread.is_alive():
            return None
        if self._failure is not None:
            raise self._failure
        return self._copies

    def _copy(self) -> None:
        try:
            for variable, location in self._data.items():
                # What is wrong in the end, the run says.
                near = self._near.get(variable, "")
                copy = partial(local_copy, location, self._cache, self._who, near)
                self._copies[variable] = str(patiently(copy, unheard))
        except AgentError as error:
            self._failure = error
