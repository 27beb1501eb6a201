"""`GcpProject`: the machines of a simulated project, their operations, and the clock of their
bill."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from google.cloud import compute_v1

from pricing_data.units import format_time
from tests.cloud.api import Rented, now_micros
from tests.cloud.gcp_fields import digest
from tests.cloud.gcp_metadata import MachineMetadata
from tests.cloud.host import MachineHost, MachineSpec
from tests.servers.gcp import PROJECT, Refused

HOST = "https://www.googleapis.com/compute/v1"
NUMBER = "314159265358"
DEFAULT_ACCOUNT = f"{NUMBER}-compute@developer.gserviceaccount.com"
LAPTOP = "someone@example.com"
SYSTEM = "system"
SPOT_USD, ON_DEMAND_USD = 0.01, 0.04
"""Per vCPU and hour."""

_MIN_MICROS = 60_000_000
"""The shortest time that is billed."""

_GRACE_SECONDS = {True: 30.0, False: 90.0}


@dataclass
class Held:
    """A machine that was created; recorded until the server ends."""

    message: compute_v1.Instance
    zone: str
    host_name: str
    metadata: MachineMetadata
    vcpus: int
    started: int
    ended: int | None = None
    reason: str = ""
    deleted: bool = False
    private: str = ""
    public: str = ""

    @property
    def id(self) -> str:
        return f"gcp:{self.zone}:{self.message.name}"

    @property
    def link(self) -> str:
        return f"{HOST}/projects/{PROJECT}/zones/{self.zone}/instances/{self.message.name}"

    @property
    def keeps_disk(self) -> bool:
        """Whether the machine was deleted but its disk was not."""
        return self.deleted and not all(disk.auto_delete for disk in self.message.disks)

    @property
    def is_spot(self) -> bool:
        return str(self.message.scheduling.provisioning_model) == "SPOT"


@dataclass
class Operation:
    """An operation; `ended` is set when it is done."""

    message: compute_v1.Operation
    zone: str | None
    ended: threading.Event = field(default_factory=threading.Event)


class GcpProject:
    """What exists in a project, and what happens to it. Everything that takes time happens in a
    thread.
    """

    def __init__(self, host: MachineHost) -> None:
        self.host, self.lock = host, threading.RLock()
        self.port = 0
        self.variables: dict[str, str] = {}
        self.admits_ssh: Callable[[compute_v1.Instance], bool] = lambda _: True
        self.held: list[Held] = []
        self.operations: dict[str, Operation] = {}
        self.tokens: dict[str, Held] = {}
        self._requests: dict[str, tuple[str, str]] = {}
        self.failing_deletions = 0
        self._refusals: dict[str, deque[tuple[str, str] | None]] = {}
        self._threads: list[threading.Thread] = []

    def rented(self) -> tuple[Rented, ...]:
        with self.lock:
            return tuple(self._rented(one) for one in self.held)

    def _rented(self, held: Held) -> Rented:
        usd = SPOT_USD if held.is_spot else ON_DEMAND_USD
        micros = (held.ended or now_micros()) - held.started
        # A minute at least, unless Google takes a machine back within its first, or could not start
        # it.
        free = held.reason in ("preempted", "never started") and micros < _MIN_MICROS
        hours = 0.0 if free else max(micros, _MIN_MICROS) / 3.6e9
        kind = held.message.machine_type.rpartition("/")[2]
        return Rented(
            held.id,
            f"gcp/{held.zone.rpartition('-')[0]}/{held.zone}/{kind}",
            held.is_spot,
            "DELETED" if held.deleted else str(held.message.status),
            held.private,
            held.public,
            held.started,
            held.ended,
            held.reason,
            usd * held.vcpus * hours,
            dict(held.message.labels),
        )

    def close(self) -> None:
        self.host.close()
        for thread in self._threads:
            thread.join(30.0)

    def evict(self, machine: str, warning_seconds: float | None) -> None:
        with self.lock:
            held = self.living(machine)
            if not held.is_spot:
                raise ValueError(f"{machine} is not a spot machine")
        if warning_seconds:
            held.metadata.change("instance/preempted", "TRUE")
        operation = self.operation("compute.instances.preempted", held.link, held.zone, SYSTEM)
        self.in_thread(self._take, held, operation, warning_seconds or 0.0)

    def expire(self, machine: str) -> None:
        """Ends a machine as Google does at the end of its `maxRunDuration`."""
        with self.lock:
            held = self.living(machine)
            if not held.message.scheduling.max_run_duration.seconds:
                raise ValueError(f"{machine} may run forever")
        operation = self.operation("delete", held.link, held.zone, SYSTEM)
        self.in_thread(self._end, held, operation, "maxRunDuration", 0.0)

    def refuse(self, zone: str, code: str, times: int = 1, skip: int = 0) -> None:
        """The next creations in a zone (after `skip` of them) fail with this code, `times` of
        them."""
        with self.lock:
            queue = self._refusals.setdefault(zone, deque())
            queue.extend(
                [None] * skip + [(code, f"The zone '{zone}' answers {code} in this test.")] * times
            )

    def creation(
        self,
        call: Any,  # noqa: ANN401  # the SDK's messages
        kind: compute_v1.MachineType,
        caller: str,
        refusal: tuple[str, str] | None = None,
    ) -> Operation:
        """Begins to create a machine, or fails with the code and message of a refusal."""
        instance, zone = call.instance_resource, call.zone
        held = self._new(instance, zone, kind)
        operation = self.operation("insert", held.link, held.zone, caller, call.request_id)
        self.remember(call, operation)
        queue = self._refusals.get(zone)
        refusal = refusal or (queue.popleft() if queue else None)
        if refusal is not None:
            code, message = refusal
            operation.message.error = compute_v1.Error(
                errors=[compute_v1.Errors(code=code, message=message)]
            )
            self.finish(operation)
            return operation
        self.held.append(held)
        self.in_thread(self._boot, held, operation)
        return operation

    def _new(self, instance: compute_v1.Instance, zone: str, kind: compute_v1.MachineType) -> Held:
        number = len(self.operations) + 1
        link = f"{HOST}/projects/{PROJECT}/zones/{zone}"
        message = compute_v1.Instance(instance)
        message.id, message.zone, message.status = 10**18 + number, link, "PROVISIONING"
        message.self_link = f"{link}/instances/{message.name}"
        started = now_micros()
        message.creation_timestamp = format_time(started)
        token = f"ya29.{secrets.token_hex(16)}"
        metadata = MachineMetadata(self._values(message, zone), token)
        held = Held(
            message, zone, f"gcp-{secrets.token_hex(4)}", metadata, kind.guest_cpus, started
        )
        self.tokens[token] = held
        return held

    def _values(self, instance: compute_v1.Instance, zone: str) -> dict[str, str]:
        email = account_of(instance)
        return {
            "instance/id": str(instance.id),
            "instance/name": instance.name,
            "instance/hostname": f"{instance.name}.{zone}.c.{PROJECT}.internal",
            "instance/zone": f"projects/{NUMBER}/zones/{zone}",
            "instance/machine-type": f"projects/{NUMBER}/machineTypes/{instance.machine_type.rpartition('/')[2]}",
            "instance/preempted": "FALSE",
            "instance/maintenance-event": "NONE",
            "instance/service-accounts/default/email": email,
            "project/project-id": PROJECT,
            "project/numeric-project-id": NUMBER,
            **{f"instance/attributes/{item.key}": item.value for item in instance.metadata.items},
        }

    def _boot(self, held: Held, operation: Operation) -> None:
        items = {item.key: item.value for item in held.message.metadata.items}
        endpoint = f"http://{self.host.reach(self.port)}"
        addresses = ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", "SPOTCTL_GCP_COMPUTE_ENDPOINT")
        environment = {**dict.fromkeys(addresses, endpoint), **self.variables}
        script = items.get("user-data", "").encode()
        firewall = partial(self.admits_ssh, held.message)
        spec = MachineSpec(held.host_name, script, held.metadata, environment, firewall)
        try:
            addresses = self.host.start(spec, lambda _: self._switched_off(held))
        except Exception as error:
            operation.message.error = compute_v1.Error(
                errors=[compute_v1.Errors(code="INTERNAL_ERROR", message=repr(error))]
            )
            with self.lock:
                self._book_end(held, "never started", deleted=True)
            self.finish(operation)
            raise
        with self.lock:
            held.private, held.public = addresses
            (interface,) = held.message.network_interfaces
            interface.network_i_p = addresses.private
            if interface.access_configs:
                interface.access_configs[0].nat_i_p = addresses.public
            held.metadata.change("instance/network-interfaces/0/ip", addresses.private)
            if held.message.status == "PROVISIONING":
                held.message.status = "RUNNING"
        self.finish(operation)

    def _switched_off(self, held: Held) -> None:
        """Its PID 1 has ended by itself: the machine is stopped, and its disk goes on to cost
        money.
        """
        with self.lock:
            if held.deleted or held.message.status not in ("PROVISIONING", "RUNNING"):
                return
            held.message.status = "TERMINATED"
            held.message.last_stop_timestamp = format_time(now_micros())
            self._book_end(held, "switched itself off")
            operation = self.operation(
                "compute.instances.guestTerminate", held.link, held.zone, SYSTEM
            )
        self.finish(operation)

    def _take(self, held: Held, operation: Operation, warning_seconds: float) -> None:
        threading.Event().wait(warning_seconds)
        with self.lock:
            if held.deleted or held.message.status != "RUNNING":
                return self.finish(operation)
            held.message.status = "STOPPING"
        self.host.power_off(held.host_name)
        with self.lock:
            self._book_end(
                held,
                "preempted",
                deleted=held.message.scheduling.instance_termination_action == "DELETE",
            )
            held.message.status = "TERMINATED"
        self.finish(operation)
        return None

    def _end(self, held: Held, operation: Operation, reason: str, grace_seconds: float) -> None:
        self.host.shut_down(held.host_name, grace_seconds)
        with self.lock:
            self._book_end(held, reason, deleted=True)
        self.finish(operation)

    def _book_end(self, held: Held, reason: str, *, deleted: bool = False) -> None:
        held.deleted = held.deleted or deleted
        if held.ended is None:
            held.ended, held.reason = now_micros(), reason

    # The SDK's messages.
    def deletion(self, call: Any, held: Held, caller: str) -> Operation:  # noqa: ANN401
        """Begins to delete a machine; the lock is held."""
        if held.message.status == "STOPPING":
            raise Refused(
                400, f"The resource '{held.message.name}' is not ready", "resourceNotReady"
            )
        operation = self.operation("delete", held.link, held.zone, caller, call.request_id)
        self.remember(call, operation)
        if self.failing_deletions:
            self.failing_deletions -= 1
            problem = compute_v1.Errors(
                code="RESOURCE_NOT_READY", message="The resource is not ready."
            )
            operation.message.error = compute_v1.Error(errors=[problem])
            self.finish(operation)
            return operation
        held.message.status = "STOPPING"
        self.in_thread(
            self._end, held, operation, f"deleted by {caller}", _GRACE_SECONDS[held.is_spot]
        )
        return operation

    def living(self, machine: str) -> Held:
        """The machine of this id that runs. KeyError: there is none."""
        with self.lock:
            for one in self.held:
                if one.id == machine and one.ended is None:
                    return one
        raise KeyError(machine)

    def named(self, zone: str, name: str) -> Held:
        """The machine of this name that exists. Refused: there is none."""
        with self.lock:
            for one in self.held:
                if (one.zone, one.message.name) == (zone, name) and not one.deleted:
                    return one
        raise Refused(
            404,
            f"The resource 'projects/{PROJECT}/zones/{zone}/instances/{name}' was not found",
            "notFound",
        )

    def repeated(self, call: Any) -> Operation | None:  # noqa: ANN401  # the SDK's messages
        """The operation of an earlier call with this request id. Refused: that call was another
        one.
        """
        known = self._requests.get(call.request_id) if call.request_id else None
        if known is None:
            return None
        if known[0] != digest(call):
            raise Refused(
                400, f"Request id {call.request_id} was used for another request", "invalid"
            )
        return self.operations[known[1]]

    # The SDK's messages.
    def remember(self, call: Any, operation: Operation) -> None:  # noqa: ANN401
        if call.request_id:
            self._requests[call.request_id] = digest(call), operation.message.name

    def operation(
        self, kind: str, link: str, zone: str | None, user: str, request_id: str = ""
    ) -> Operation:
        """A new operation, which runs."""
        with self.lock:
            name, now = (
                f"operation-{len(self.operations)}-{secrets.token_hex(4)}",
                format_time(now_micros()),
            )
            message = compute_v1.Operation(
                id=len(self.operations) + 1,
                name=name,
                operation_type=kind,
                status="RUNNING",
                target_link=link,
                user=user,
                insert_time=now,
                start_time=now,
            )
            if request_id:
                message.client_operation_id = request_id
            if zone and zone.count("-") > 1:
                message.zone = f"{HOST}/projects/{PROJECT}/zones/{zone}"
            self.operations[name] = running = Operation(message, zone)
            return running

    def finish(self, operation: Operation) -> None:
        with self.lock:
            operation.message.status = compute_v1.Operation.Status(compute_v1.Operation.Status.DONE)
            operation.message.end_time = format_time(now_micros())
        operation.ended.set()

    def in_thread(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()


def account_of(instance: compute_v1.Instance) -> str:
    """The service account of a machine, as its operations name it."""
    email = instance.service_accounts[0].email if instance.service_accounts else ""
    return DEFAULT_ACCOUNT if email == "default" else str(email)
