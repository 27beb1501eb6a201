"""The files of the local provider: everything about a machine is in its folder, which any process
can read.

    clock.json                  the market's time
    standing.json               how long the market's clock has stood, because the computer delayed the machines
    delays/                     the processes whose delays count, see `spotctl.clouds.local.clock`
    begun.json                  the number of the first allocation since the market was started
    link.key                    the key from which the secrets of links are derived; only its owner can read it
    lock                        held by the process that changes something
    machines/ALLOCATION/        named after the request's token, so a token has one folder
        allocation.json         the request (without its secrets), its number, and the planned ends of its machines
        agent.log               errors of hypervisors and agents
        0/ 1/ ...               one folder for each machine, see `spotctl.clouds.local.hypervisor`

An allocation is built in a temporary folder and renamed: it exists with all its machines, or not at
all. Its file and the ends of machines are flushed to disk. A power failure ends the processes and
may lose the rest; a file that can no longer be read then counts as never written.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from pricing_data.market import Market
from spotctl.agent.container.payload import Payload
from spotctl.agent.files import exclusive, replace_json, sync_folder
from spotctl.clouds.local.machine_file import MachineFile, PlannedEnd, ReplayedEnd, end_of
from spotctl.clouds.provider import MachineRequest

_UNFINISHED, _FORGOTTEN = ".new-", ".over-"


@dataclass(frozen=True)
class LocalAllocation:
    """The machines that one request got; `number` counts allocations in the order of their
    grants."""

    folder: Path
    request: MachineRequest
    number: int
    closes_at: int
    plans: tuple[PlannedEnd, ...]

    @property
    def machines(self) -> tuple[MachineFolder, ...]:
        return tuple(
            MachineFolder(self, self.folder / str(index)) for index in range(len(self.plans))
        )


@dataclass(frozen=True, slots=True)
class MachineFolder:
    """One machine's folder."""

    allocation: LocalAllocation
    folder: Path

    @property
    def id(self) -> str:
        return f"{self.allocation.folder.name}-{self.folder.name}"

    @property
    def plan(self) -> PlannedEnd:
        """When the market takes the machine, which only the market may know."""
        return self.allocation.plans[int(self.folder.name)]

    @property
    def is_up(self) -> bool:
        """Whether the machine's agent has ever come up."""
        return (self.folder / "state.json").exists()

    def number(self, name: Literal["port", "agent", "pid"]) -> int | None:
        """The port or the process id of the machine's agent, or its hypervisor's process id, once
        the agent is up.
        """
        return _number(read_json(self.folder / "state.json"), name)

    @property
    def terminated_at(self) -> int | None:
        """When the launcher terminated the machine."""
        return _number(read_json(self.folder / "terminate.json"), "at")

    @property
    def ended(self) -> ReplayedEnd | None:
        """When and why the machine ended; nothing of it runs then."""
        end = read_json(self.folder / "end.json")
        return None if end is None else ReplayedEnd(**end)

    def end_by(self, now: int) -> ReplayedEnd | None:
        """The end that has come by now, even if the hypervisor has not carried it out or recorded
        it yet.
        """
        ended = self.ended
        if ended is not None:
            return ended

        renewed = _number(read_json(self.folder / "lease.json"), "until")
        lease = self.allocation.request.lease_until if renewed is None else renewed
        until = min(lease, self.allocation.closes_at)
        return end_of(self.plan, until, self.terminated_at, now)

    def terminate(self, at: int) -> None:
        """Tells the hypervisor to end the machine."""
        replace_json(self.folder / "terminate.json", {"at": at})

    def record_end(self, end: ReplayedEnd) -> None:
        """Records the end of a machine whose hypervisor cannot do so any more."""
        replace_json(self.folder / "end.json", asdict(end), lasting=True)


class AllocationFolders:
    """The allocations under a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.machines = root / "machines"

    def locked(self) -> AbstractContextManager[None]:
        """Lets one process at a time change something; a killed one releases the lock."""
        self.machines.mkdir(parents=True, exist_ok=True)
        return exclusive(self.root / "lock")

    def of_token(self, token: str) -> LocalAllocation | None:
        return self._allocation(self._folder_of(token))

    def all(self) -> Iterator[LocalAllocation]:
        """All allocations that are not forgotten, in the order of their grants."""
        if self.machines.is_dir():
            allocations = (
                self._allocation(path)
                for path in self.machines.iterdir()
                if not path.name.startswith(".")
            )
            known = (allocation for allocation in allocations if allocation is not None)
            yield from sorted(known, key=attrgetter("number"))

    def numbers(self) -> tuple[int, int]:
        """The number of the first allocation since the market was started, and of the next one."""
        first = _number(read_json(self.root / "begun.json"), "first") or 0
        return first, 1 + max((allocation.number for allocation in self.all()), default=first - 1)

    def begin(self) -> None:
        """Restarts the count of allocations; their numbers go on."""
        _, following = self.numbers()
        replace_json(self.root / "begun.json", {"first": following}, lasting=True)

    def forget(self, before: float) -> None:
        """Removes allocations that ended before a time of this computer, and leftovers of killed
        processes.

        The caller holds the lock.
        """
        for allocation in self.all():
            ends = [machine.folder / "end.json" for machine in allocation.machines]
            if all(end.exists() and end.stat().st_mtime < before for end in ends):
                allocation.folder.rename(
                    allocation.folder.with_name(f"{_FORGOTTEN}{allocation.folder.name}")
                )
        for leftover in self.machines.glob(".*"):
            shutil.rmtree(leftover, ignore_errors=True)

    def by_id(self, machines: Sequence[str]) -> dict[str, MachineFolder | None]:
        """The folders of the machines with these ids; None for an unknown id."""
        parts = {machine: machine.rpartition("-") for machine in machines}
        names = {name for name, _, _ in parts.values() if name}
        allocations = {name: self._allocation(self.machines / name) for name in names}
        folders: dict[str, MachineFolder | None] = {}

        for machine, (name, _, index) in parts.items():
            allocation = allocations.get(name)
            if allocation is None or not index.isdecimal() or int(index) >= len(allocation.plans):
                folders[machine] = None
            else:
                folders[machine] = allocation.machines[int(index)]

        return folders

    def create(
        self, request: MachineRequest, plans: Sequence[PlannedEnd], number: int, closes_at: int
    ) -> LocalAllocation:
        """Grants a request by a rename, so a caller that dies leaves all or nothing. The caller
        holds the lock.
        """
        folder = self._folder_of(request.token)
        new = folder.with_name(f"{_UNFINISHED}{folder.name}")
        shutil.rmtree(new, ignore_errors=True)
        allocation = LocalAllocation(new, request, number, closes_at, tuple(plans))

        try:
            for index, machine in enumerate(allocation.machines):
                machine.folder.mkdir(parents=True)
                file = MachineFile(
                    f"{folder.name}-{index}",
                    index,
                    machine.plan,
                    request.lease_until,
                    closes_at,
                    request.payload,
                )
                replace_json(machine.folder / "machine.json", file.to_json())
            replace_json(new / "allocation.json", _written(allocation), lasting=True)
            new.rename(folder)
        except OSError:
            shutil.rmtree(new, ignore_errors=True)
            raise

        sync_folder(self.machines)
        return replace(allocation, folder=folder)

    def _folder_of(self, token: str) -> Path:
        return self.machines / hashlib.sha256(token.encode()).hexdigest()[:16]

    def _allocation(self, folder: Path) -> LocalAllocation | None:
        values = read_json(folder / "allocation.json")
        if values is None or "plans" not in values:
            # An earlier version wrote no plans: its machines ended when their leases did.
            return None

        payload = values["payload"]
        request = MachineRequest(
            values["token"],
            Market.parse(values["market"]),
            values["count"],
            values["bid"],
            values["lease_until"],
            values["tags"],
            None if payload is None else Payload.from_json(payload),
        )

        plans = tuple(PlannedEnd(**plan) for plan in values["plans"])
        return LocalAllocation(folder, request, values["number"], values["closes_at"], plans)


def read_json(path: Path) -> dict[str, Any] | None:
    """The values in a file that is always replaced as a whole; None if it is missing or did not
    reach the disk.
    """
    try:
        values: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return values


def _number(values: Mapping[str, Any] | None, name: str) -> int | None:
    return None if values is None else int(values[name])


def _written(allocation: LocalAllocation) -> dict[str, Any]:
    request = allocation.request
    payload = None if request.payload is None else request.payload.to_json()
    plans = [asdict(plan) for plan in allocation.plans]
    return {
        "token": request.token,
        "market": str(request.market),
        "count": request.count,
        "bid": request.bid,
        "lease_until": request.lease_until,
        "tags": dict(request.tags),
        "payload": payload,
        "number": allocation.number,
        "closes_at": allocation.closes_at,
        "plans": plans,
    }
