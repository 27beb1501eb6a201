"""Where the local provider's machines lie: all that is known of one is in its folder, for any process to see.

    clock.json                  the market's time
    begun.json                  the number of the first allocation since the market began
    lock                        held by whoever changes something
    machines/ALLOCATION/        named by the order's token, so that a token has one folder
        allocation.json         the order (without its secrets), its number, and the fates of its machines
        agent.log               what the machines' own processes complain about
        0/ 1/ ...               one folder for each machine granted, see `spotctl.agent.machine`

An allocation is built beside and renamed: it is there with all its machines, or not at all. Its file and the ends of
machines are written through to the disk. The rest a power failure may lose, as it ends the processes; what it left
unreadable counts as never written.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pricing_data.market import Market
from spotctl.agent.files import replace_json, sync_folder
from spotctl.agent.planned_ending import Ending, PlannedEnding, ending
from spotctl.machines.base import MachineRequest, Payload

_BESIDE, _OVER = ".new-", ".over-"


@dataclass(frozen=True)
class Allocation:
    """What one order got, numbered in the order in which it was granted."""

    folder: Path
    order: MachineRequest
    number: int
    closes_at: int
    fates: tuple[PlannedEnding, ...]

    @property
    def places(self) -> tuple[Place, ...]:
        """Its machines, in order."""
        return tuple(Place(self, self.folder / str(index)) for index in range(len(self.fates)))


@dataclass(frozen=True, slots=True)
class Place:
    """One machine's folder."""

    allocation: Allocation
    folder: Path

    @property
    def id(self) -> str:
        """The machine's name."""
        return f"{self.allocation.folder.name}-{self.folder.name}"

    @property
    def fate(self) -> PlannedEnding:
        """What the market has in store for it, which is nobody's to know but the market's."""
        return self.allocation.fates[int(self.folder.name)]

    @property
    def lease_until(self) -> int:
        """When it ends unless that is moved."""
        moved = _moment(read_json(self.folder / "lease.json"), "until")
        return min(self.allocation.order.lease_until, self.allocation.closes_at) if moved is None else moved

    @property
    def returned_at(self) -> int | None:
        """When it was given back."""
        return _moment(read_json(self.folder / "leave.json"), "at")

    @property
    def warned_until(self) -> int | None:
        """When it will be taken, if it was told."""
        return _moment(read_json(self.folder / "notice.json"), "until")

    @property
    def is_up(self) -> bool:
        """Whether its process has come up, at any time."""
        return (self.folder / "state.json").exists()

    @property
    def ended(self) -> Ending | None:
        """When and why it ended; nothing of it runs then."""
        end = read_json(self.folder / "end.json")
        return None if end is None else Ending(**end)

    def end_by(self, now: int) -> Ending | None:
        """The end that has come by now, whether or not it was carried out and recorded yet."""
        return self.ended or ending(self.fate, self.lease_until, self.returned_at, now)

    @property
    def pid(self) -> int | None:
        """Its process, once it has come up."""
        return _moment(read_json(self.folder / "state.json"), "pid")

    @property
    def given(self) -> Mapping[str, Any] | None:
        """What it was last given to run, as it was written down."""
        return read_json(self.folder / "work.json")

    @property
    def work(self) -> str:
        """The name of what it was last given to run."""
        work = self.given
        return "" if work is None else str(work["name"])

    def exit_code(self, work: str) -> int | None:
        """What the work of a name ended with."""
        result = read_json(self.folder / "result.json")
        return None if result is None or result["name"] != work else int(result["code"])

    def lease(self, until: int) -> None:
        """Moves the end; no lease goes beyond what the market's prices are known for."""
        replace_json(self.folder / "lease.json", {"until": min(until, self.allocation.closes_at)})

    def leave(self, at: int) -> None:
        """Tells it to end."""
        replace_json(self.folder / "leave.json", {"at": at})

    def end(self, end: Ending) -> None:
        """Records the end of a machine that cannot do so itself any more."""
        replace_json(self.folder / "end.json", asdict(end), lasting=True)

    def assign(self, payload: Payload) -> None:
        """Gives it something to run."""
        replace_json(self.folder / "work.json", {**_plain(payload), "index": int(self.folder.name)})


class Folders:
    """The allocations under a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.machines = root / "machines"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One caller at a time changes something; a killed one lets go."""
        self.machines.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def of_token(self, token: str) -> Allocation | None:
        """What a token has got."""
        return self._allocation(self._folder_of(token))

    def all(self) -> Iterator[Allocation]:
        """Everything that was granted and is not forgotten, in the order in which it was."""
        if self.machines.is_dir():
            found = (self._allocation(path) for path in self.machines.iterdir() if not path.name.startswith("."))
            yield from sorted((one for one in found if one is not None), key=lambda one: one.number)

    def next_number(self) -> int:
        """The number of the next allocation."""
        return 1 + max((one.number for one in self.all()), default=self.first_number - 1)

    @property
    def first_number(self) -> int:
        """The number of the first allocation since the market began."""
        return _moment(read_json(self.root / "begun.json"), "first") or 0

    def begin(self) -> None:
        """Allocations are numbered on, but counted from here."""
        replace_json(self.root / "begun.json", {"first": self.next_number()}, lasting=True)

    def forget(self, before: float) -> None:
        """Removes allocations that were over at a time of the computer, and what killed callers left. Held locked."""
        for allocation in self.all():
            ends = [place.folder / "end.json" for place in allocation.places]
            if all(end.exists() and end.stat().st_mtime < before for end in ends):
                allocation.folder.rename(allocation.folder.with_name(f"{_OVER}{allocation.folder.name}"))
        for left in self.machines.glob(".*"):
            shutil.rmtree(left, ignore_errors=True)

    def places(self, machines: Sequence[str]) -> dict[str, Place | None]:
        """The folders of the machines with these ids; None where there is none."""
        parts = {machine: machine.rpartition("-") for machine in machines}
        names = {name for name, _, _ in parts.values() if name}
        allocations = {name: self._allocation(self.machines / name) for name in names}
        return {machine: _place(allocations.get(name), index) for machine, (name, _, index) in parts.items()}

    def create(self, order: MachineRequest, fates: Sequence[PlannedEnding], number: int, closes_at: int) -> Allocation:
        """Grants an order: from the rename on it is granted, whatever becomes of the caller. Held under the lock."""
        folder = self._folder_of(order.token)
        beside = folder.with_name(f"{_BESIDE}{folder.name}")
        shutil.rmtree(beside, ignore_errors=True)
        allocation = Allocation(beside, order, number, closes_at, tuple(fates))
        try:
            for place in allocation.places:
                place.folder.mkdir(parents=True)
                replace_json(place.folder / "fate.json", asdict(place.fate))
                place.lease(order.lease_until)
                if order.payload is not None:
                    place.assign(order.payload)
            replace_json(beside / "allocation.json", _written(allocation), lasting=True)
            beside.rename(folder)
        except OSError:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        sync_folder(self.machines)
        return replace(allocation, folder=folder)

    def _folder_of(self, token: str) -> Path:
        return self.machines / hashlib.sha256(token.encode()).hexdigest()[:16]

    def _allocation(self, folder: Path) -> Allocation | None:
        values = read_json(folder / "allocation.json")
        return None if values is None else _read(folder, values)


def _place(allocation: Allocation | None, index: str) -> Place | None:
    if allocation is None or not index.isdecimal() or int(index) >= len(allocation.fates):
        return None
    return allocation.places[int(index)]


def read_json(path: Path) -> dict[str, Any] | None:
    """A file that is replaced as a whole; None where there is none, or none that reached the disk."""
    try:
        values: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return values


def _moment(values: Mapping[str, Any] | None, name: str) -> int | None:
    return None if values is None else int(values[name])


def _plain(payload: Payload) -> dict[str, Any]:
    return {
        "name": payload.name,
        "command": payload.command,
        "environment": dict(payload.environment),
        "folder": payload.folder,
        "term_at_notice": payload.term_at_notice,
        "grace_seconds": payload.grace_seconds,
    }


def _written(allocation: Allocation) -> dict[str, Any]:
    order = allocation.order
    return {
        "token": order.token,
        "market": str(order.market),
        "machines": order.count,
        "bid": order.bid,
        "lease_until": order.lease_until,
        "tags": dict(order.tags),
        "payload": None if order.payload is None else _plain(order.payload),
        "number": allocation.number,
        "closes_at": allocation.closes_at,
        "fates": [asdict(fate) for fate in allocation.fates],
    }


def _read(folder: Path, values: Mapping[str, Any]) -> Allocation:
    payload = values["payload"]
    order = MachineRequest(
        values["token"],
        Market.parse(values["market"]),
        values["machines"],
        values["bid"],
        values["lease_until"],
        values["tags"],
        None if payload is None else Payload(**{**payload, "command": tuple(payload["command"])}),
    )
    fates = tuple(PlannedEnding(**fate) for fate in values["fates"])
    return Allocation(folder, order, values["number"], values["closes_at"], fates)
