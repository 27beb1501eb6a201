"""Events as the log keeps them: the name of their kind, and a body in JSON. Logs of earlier versions stay readable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from types import GenericAlias
from typing import Any

from pydantic import TypeAdapter, ValidationError

from spotctl.log.errors import BrokenLog
from spotctl.log.events import KINDS, Event, RunBegan
from spotctl.log.log_row import LogRow, StoredRow

_FORMER_KINDS = {
    "Refrained": "BudgetExceeded",
    "LeavePlanned": "ReturnScheduled",
    "WorkBegan": "AttemptBegan",
    "WorkStopped": "AttemptStopped",
}
_FORMER_FIELDS = {"BudgetExceeded": {"what": "action"}, "AttemptStopped": {"by_itself": "by_program"}}
"""Names in logs of version 0.1.0, which stay readable."""


@cache
def _adapter(kind: str) -> TypeAdapter[Event]:
    if kind not in KINDS:
        raise BrokenLog(f"the event log contains an unknown event {kind!r}; upgrade spotctl to read it")
    return TypeAdapter(KINDS[kind])


def to_json(event: Event) -> str:
    """The body of an event in the log."""
    return _adapter(type(event).__name__).dump_json(event).decode()


@cache
def _adapter_of_many(kind: str) -> TypeAdapter[list[Event]]:
    # The class is known at run time only.
    of_kind: Any = GenericAlias(list, (KINDS[kind],))
    return TypeAdapter(of_kind)


def log_rows(stored: Sequence[StoredRow]) -> list[LogRow]:
    """The rows with their events."""
    if not stored:
        return []
    numbers, runs, times, kinds, bodies, _ = zip(*stored, strict=True)
    return list(map(LogRow, numbers, runs, times, all_from_json(kinds, bodies)))


def job_of(rows: Sequence[StoredRow]) -> str:
    """The job of a run. BrokenLog: the run has lost its beginning."""
    (began,) = log_rows(rows[:1])
    if not isinstance(began.event, RunBegan):
        raise BrokenLog(f"event log is damaged: the beginning of run {began.run} is lost (spotctl log check)")
    return began.event.job


def all_from_json(kinds: Sequence[str], bodies: Sequence[str]) -> list[Event]:
    """The events of kinds and bodies. Each kind is read in one go, faster than by a `from_json` for each row."""
    of_kind: defaultdict[str, list[str]] = defaultdict(list)
    for kind, body in zip(kinds, bodies, strict=True):
        of_kind[kind].append(body)
    events = {kind: iter(_of_one_kind(kind, texts)) for kind, texts in of_kind.items()}
    return [next(events[kind]) for kind in kinds]


def _of_one_kind(kind: str, bodies: list[str]) -> list[Event]:
    if kind in KINDS and kind not in _FORMER_FIELDS:
        with suppress(ValidationError):
            events = _adapter_of_many(kind).validate_json(f"[{','.join(bodies)}]")
            # A damaged body may hold several values.
            if len(events) == len(bodies):
                return events
    return [from_json(kind, body) for body in bodies]


def from_json(kind: str, body: str) -> Event:
    """The event of a kind and a body. Raises BrokenLog for unknown kinds and damaged bodies."""
    kind = _FORMER_KINDS.get(kind, kind)
    for former, name in _FORMER_FIELDS.get(kind, {}).items():
        body = body.replace(f'"{former}":', f'"{name}":', 1)
    try:
        return _adapter(kind).validate_json(body)
    except ValidationError as error:
        raise BrokenLog(
            f"the event log contains a damaged {kind}: {error.errors()[0]['msg']} (spotctl log check)"
        ) from error
