"""The connection to a Ray cluster, and the nodes of a job as tasks on it. Nothing else in this
package imports Ray.
"""

import os
import secrets
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from agileml.engines.base import Gone
from agileml.engines.local.fleet import end_of
from agileml.engines.ray import role_task
from agileml.errors import AgileMLError, BadInput
from agileml.runtime.folders import own_folder

LOOPBACK = "127.0.0.2"
"""The address of a cluster on this computer. Ray replaces 127.0.0.1 by an address that other
computers can reach."""


_LONGEST_SOCKET = len("/r/session_2026-11-21_14-42-25_055622_1234567/sockets/plasma_store")


_STORE_BYTES = 100 << 20
"""Ray's object store, which a job hardly uses: parameters travel from node to node."""


MARKET_LABEL = "ray.io/market-type"
"""Ray's own label: the autoscaler and KubeRay set it to `spot` or `on-demand`."""


MARK_SHARE = 0.001
"""A node's share of the resource that marks a machine: the mark tells kinds of machines apart and
limits no numbers."""


@dataclass(frozen=True, slots=True)
class RayMachine:
    """A machine of the cluster, as Ray describes it."""

    resources: Mapping[str, float]
    labels: Mapping[str, str]


def placement_options(machines: Sequence[RayMachine], *, reliable: bool) -> dict[str, Any]:
    """Ray's options for a node of this kind. Without marks in the cluster, it may run anywhere.

    >>> marked = RayMachine({"CPU": 4.0, "reliable": 1.0}, {})
    >>> placement_options([marked], reliable=True)
    {'resources': {'reliable': 0.001}}
    >>> placement_options([marked], reliable=False)
    {}
    """
    mark = "reliable" if reliable else "transient"
    if any(mark in machine.resources for machine in machines):
        return {"resources": {mark: MARK_SHARE}}

    markets = {machine.labels.get(MARKET_LABEL) for machine in machines}
    if reliable and "spot" in markets:
        return {"label_selector": {MARKET_LABEL: "!spot"}}
    if not reliable and "spot" in markets:
        return {"label_selector": {MARKET_LABEL: "spot"}}

    return {}


class RayCluster:
    """Runs nodes as tasks. `own`: this process has started the cluster, for this job alone."""

    # A module, which may be missing.
    def __init__(self, ray: Any, *, own: bool) -> None:  # noqa: ANN401
        self._ray = ray
        self.own = own
        self._view = ClusterView(ray)
        self._tasks: dict[str, Any] = {}
        """The nodes of the job: what the task of each yields."""
        self._machines: dict[str, str] = {}
        """Where those run that have started."""
        self._stopped: set[str] = set()
        ray.cloudpickle.register_pickle_by_value(role_task)
        self._run_role = ray.remote(role_task.run_role)

    @property
    def host(self) -> str:
        """The address at which the cluster's machines reach this one."""
        return str(self._ray.util.get_node_ip_address())

    @property
    def machines(self) -> list[RayMachine]:
        """The machines that are alive."""
        machines, _ = self._view.newest
        return machines

    @property
    def waiting(self) -> Sequence[str]:
        """Names of nodes that have not started: Ray has no room for them yet, or starts their
        worker processes.
        """
        return [name for name in self._tasks if name not in self._machines]

    def shared(self, content: bytes) -> Any:  # noqa: ANN401 - a reference of Ray
        """The content as an argument for many tasks; each machine gets it once."""
        return self._ray.put(content)

    def start(self, name: str, options: Mapping[str, Any], *arguments: object) -> None:
        """Asks Ray to run a node; returns without waiting for it."""
        task = self._run_role.options(
            name=name, max_retries=0, scheduling_strategy="SPREAD", **options
        )
        self._tasks[name] = task.remote(*arguments)

    def stop(self, name: str) -> None:
        """Kills a node, wherever it is; `ended` reports it with status None."""
        self._stopped.add(name)
        self._ray.cancel(self._tasks[name], force=True)

    def ended(self) -> list[Gone]:
        """The nodes that ended since the last call."""
        if not self._tasks:
            return []

        names = {items: name for name, items in self._tasks.items()}
        ready, _ = self._ray.wait(list(names), num_returns=len(names), timeout=0)
        ended = [gone for items in ready if (gone := self._next(names[items])) is not None]
        for gone in ended:
            del self._tasks[gone.name]
            self._machines.pop(gone.name, None)

        return ended

    def draining(self) -> dict[str, float]:
        """The nodes on machines that will be taken away: when, in seconds since 1970; 0 if that is
        not known.
        """
        _, machines = self._view.newest
        return {
            name: machines[machine] / 1000
            for name, machine in self._machines.items()
            if machine in machines
        }

    def close(self) -> None:
        """Kills all nodes, unless the head is lost: then they end without this process, which Ray
        would wait for.
        """
        self._view.close()
        try:
            _ = self._view.newest
        except HeadLost:
            return

        for name in list(self._tasks):
            self.stop(name)
        if self._tasks:
            self._ray.wait(list(self._tasks.values()), num_returns=len(self._tasks), timeout=10)

    def _next(self, name: str) -> Gone | None:
        """Takes the next result of a node's task: its machine, or the end of the node, which is
        returned.
        """
        if name in self._stopped:
            # What it has yielded no longer matters, and Ray may never say: if it was cancelled
            # before it had a worker.
            return Gone(name)

        try:
            item = self._ray.get(next(self._tasks[name]))
        except self._ray.exceptions.RayError as error:
            # Otherwise the node's machine or worker process is gone.
            exceptions = self._ray.exceptions
            own = isinstance(error, exceptions.RayTaskError | exceptions.OutOfMemoryError)
            if own:
                return Gone(name, 1, end_of(str(error)))
            return Gone(name)
        except StopIteration:
            # The task ended without an exception before it said how.
            return Gone(name)

        if isinstance(item, str):
            self._machines[name] = item
            return None

        status, log = item
        return Gone(name, status, end_of(log) if status else "")


@contextmanager
def connected(address: str | None) -> Iterator[RayCluster]:
    """The cluster at an address, the one this process is connected to, or else one that ends with
    this block.

    Raises BadInput if there is none at the address, AgileMLError if Ray is not installed.
    """
    try:
        import ray
    except ImportError:
        raise AgileMLError("engine ray needs Ray: pip install 'spotctl[cluster]'") from None

    address = address or os.environ.get("RAY_ADDRESS")
    if address and address.startswith("ray://"):
        raise BadInput(
            f"address {address}: nodes must reach this process, and through Ray Client they cannot;"
            " run it on a machine of the cluster, for example with ray job submit"
        )

    if ray.is_initialized():
        yield RayCluster(ray, own=False)
    elif address:
        with _session(ray, address, address=address):
            yield RayCluster(ray, own=False)
    else:
        with own_folder(_LONGEST_SOCKET) as folder, _environment(ray):
            # Ray lets everybody read its folder, so it is inside one that others cannot enter.
            options = {
                "_temp_dir": f"{folder}/r",
                "_node_ip_address": LOOPBACK,
                "object_store_memory": _STORE_BYTES,
            }
            with _session(
                ray, "local", address="local", num_cpus=1, include_dashboard=False, **options
            ):
                yield RayCluster(ray, own=True)


@contextmanager
def _session(ray: Any, where: str, **options: Any) -> Iterator[None]:  # noqa: ANN401
    """A connection, and with it a cluster if there was none."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        try:
            ray.init(log_to_driver=False, configure_logging=False, **options)
        except Exception as error:
            # Ray raises a plain one if a machine takes more than 30 seconds to start.
            if type(error) is not Exception and not isinstance(
                error, OSError | RuntimeError | ValueError
            ):
                raise
            raise BadInput(f"no Ray cluster at {where}: {error}") from error
        if main:
            # Ray has replaced what the caller wants SIGTERM to do.
            signal.signal(signal.SIGTERM, before)
        yield
    except HeadLost:
        # To shut down takes the head.
        raise
    except BaseException:
        ray.shutdown()
        raise
    else:
        ray.shutdown()


@contextmanager
def _environment(ray: Any) -> Iterator[None]:  # noqa: ANN401
    """Variables for the processes of a cluster of our own: it reports to no server, and lets in
    this job alone.
    """
    ours = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _token()}
    before = {name: os.environ.get(name) for name in ours}
    _set_variables(ray, ours)
    try:
        yield
    finally:
        _set_variables(ray, before)


def _set_variables(ray: Any, values: Mapping[str, str | None]) -> None:  # noqa: ANN401
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    # Ray has read them when it was imported; ray.init does the same when it turns authentication
    # on.
    ray._raylet.Config.initialize("")


@cache
def _token() -> str:
    """A secret of this process, because Ray reads the variable only once."""
    return secrets.token_hex(32)


LOOK_SECONDS = 0.5
"""Time between two looks."""


HEAD_SECONDS = 30.0
"""A head that has not answered for so long is lost. Ray waits for twice that."""


class HeadLost(AgileMLError):
    """The machine that holds a Ray cluster together does not answer."""


class ClusterView:
    """The newest look at the cluster. Raises HeadLost if it is too old."""

    def __init__(self, ray: Any) -> None:  # noqa: ANN401 - a module, which may be missing
        self._ray = ray
        self._failure: Exception | None = None
        self._newest = self._look()
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="ray-view", daemon=True).start()

    @property
    def newest(self) -> tuple[list[RayMachine], Mapping[str, int]]:
        """The head's last answer: the machines that are alive, and the ids of those that will be
        taken away with the time of that, in milliseconds since 1970.
        """
        looked_at, machines, draining = self._newest
        if time.monotonic() - looked_at > HEAD_SECONDS:
            # What Ray raised last is for `--debug`: its kinds are many, and its texts are for Ray's
            # developers.
            raise HeadLost(
                f"the head of the Ray cluster has not answered for {HEAD_SECONDS:g} seconds"
            ) from self._failure
        return machines, draining

    def close(self) -> None:
        """No more looks."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(LOOK_SECONDS):
            try:
                self._newest = self._look()
            # Whatever it is, there is no answer; `newest` says so.
            except Exception as error:  # noqa: BLE001
                self._failure = error

    def _look(self) -> tuple[float, list[RayMachine], Mapping[str, int]]:
        machines = [
            RayMachine(node["Resources"], node["Labels"])
            for node in self._ray.nodes()
            if node["Alive"]
        ]
        # Ray Train finds out in this way; there is no public one.
        draining = self._ray._private.state.state.get_draining_nodes()
        return time.monotonic(), machines, draining
