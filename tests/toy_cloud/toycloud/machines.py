"""Machines of the toy cloud: their tags besides those of the request, and the link to their
agents."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from spotctl.agent import layout
from spotctl.agent.container.payload import Payload
from spotctl.agent.lease.lease_files import MachineNotice
from spotctl.clouds.errors import NotFound
from spotctl.clouds.link import AgentLink, ExecResult, MachineStatus
from spotctl.clouds.provider import Machine, MachineRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

PREFIX = "toy:"
ORDER = "toy-order"
"""The tag that keeps the image, the badge and the first payload of a request."""


@dataclass(frozen=True, slots=True)
class ToyOrder:
    """The parts of a request that the processes do not know."""

    image: str
    badge: str | None
    payload: Payload | None

    @classmethod
    def of_tags(cls, tags: Mapping[str, str]) -> ToyOrder:
        values = json.loads(tags[ORDER])
        payload = None if values["payload"] is None else Payload.from_json(values["payload"])
        return cls(values["image"], values["badge"], payload)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables by which a program knows its machine."""
        return {"TOY_IMAGE": self.image, "TOY_BADGE": self.badge or ""}

    def tagged(self, request: MachineRequest) -> MachineRequest:
        """The request for processes, which get their first payload once they are prepared."""
        payload = None if self.payload is None else self.payload.to_json()
        text = json.dumps(
            {"image": self.image, "badge": self.badge, "payload": payload}, sort_keys=True
        )
        secrets = {**request.secrets, **self.variables}
        return replace(
            request,
            image=None,
            identity=None,
            payload=None,
            secrets=secrets,
            tags={**request.tags, ORDER: text},
        )


def without_order(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags of the request."""
    return {name: value for name, value in tags.items() if name != ORDER}


def machine_of(process: Machine) -> Machine:
    """The machine as the toy cloud lists it."""
    return replace(process, id=PREFIX + process.id, tags=without_order(process.tags))


@contextmanager
def named_as_listed() -> Iterator[None]:
    """Names machines that are gone by the ids of the toy cloud."""
    try:
        yield
    except NotFound as error:
        raise NotFound(
            f"{PREFIX if error.ids else ''}{error}", [PREFIX + name for name in error.ids]
        ) from error


class ToyLink(AgentLink):
    """The link to the agent of a process. Paths of a machine become paths of this computer."""

    def __init__(self, link: AgentLink, job: Path) -> None:
        self._link, self._job = link, job

    def assign(self, payload: Payload) -> None:
        python, *words = payload.command
        here = (sys.executable if python == layout.PYTHON else python, *words)
        folder = str(self._job) if payload.folder == layout.JOB_FOLDER else payload.folder
        self._named(lambda: self._link.assign(replace(payload, command=here, folder=folder)))

    def renew(self, lease_until: int) -> None:
        self._named(lambda: self._link.renew(lease_until))

    def status(self) -> MachineStatus:
        return self._named(self._link.status)

    def notify(self, kind: str, until: int, source: str) -> None:
        self._named(lambda: self._link.notify(kind, until, source))

    def notices(self) -> tuple[MachineNotice, ...]:
        return self._named(self._link.notices)

    def output(self, after: int = 0) -> bytes:
        return self._named(lambda: self._link.output(after))

    def output_times(self, after: int = 0) -> bytes:
        return self._named(lambda: self._link.output_times(after))

    def exec(self, command: Sequence[str]) -> ExecResult:
        return self._named(lambda: self._link.exec(command))

    def _named(self, call: Callable[[], T]) -> T:
        with named_as_listed():
            return call()
