"""Events as the log keeps them: the name of their kind, and a body in JSON. Logs of earlier
versions stay readable.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import cache
from math import inf, isfinite
from pathlib import PurePath
from types import GenericAlias
from typing import Any, get_type_hints

import msgspec

from pricing_data.errors import BadMarket
from pricing_data.market import Market
from spotctl.log.events import KINDS, Event, JsonFloat, RunBegan
from spotctl.log.outcomes import BrokenLog
from spotctl.log.schema import StoredRow
from spotctl.log.state import LogRow

_FORMER_KINDS = {
    "Refrained": "BudgetExceeded",
    "LeavePlanned": "ReturnScheduled",
    "WorkBegan": "AttemptBegan",
    "WorkStopped": "AttemptStopped",
}
_FORMER_FIELDS = {
    "BudgetExceeded": {"what": "action"},
    "AttemptStopped": {"by_itself": "by_program"},
}
"""Names in logs of version 0.1.0, which stay readable."""


_NOT_READ = (msgspec.MsgspecError, BadMarket, RecursionError)


@cache
# A class that is known at run time only.
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:  # noqa: ANN401
    return msgspec.json.Decoder(kind, strict=False, dec_hook=_from_plain)


def _from_plain(kind: type, given: object) -> object:
    """The value of a field that JSON cannot have as it is."""
    if kind is JsonFloat:
        # Version 0.1.0 wrote an infinite number as null.
        return inf if given is None else msgspec.convert(given, float, strict=False)
    return Market.parse(str(given))


def to_json(event: Event) -> str:
    """The body of an event in the log."""
    return msgspec.json.encode(_plain(event, type(event)), enc_hook=_plain_base).decode()


def _plain(value: object, kind: object) -> object:
    """A value of an event as JSON can have it; `kind` is the declared type of its field."""
    if kind is JsonFloat:
        assert isinstance(value, float | int)
        return value if isfinite(value) else str(value)
    if isinstance(value, Market):
        return str(value)
    if isinstance(value, tuple):
        return [_plain(part, None) for part in value]

    if is_dataclass(value):
        return {
            name: _plain(getattr(value, name), of_field)
            for name, of_field in _fields(value.__class__)
        }

    return value


@cache
def _fields(kind: Any) -> list[tuple[str, object]]:  # noqa: ANN401 - a dataclass
    hints = get_type_hints(kind)
    return [(field.name, hints[field.name]) for field in fields(kind)]


def _plain_base(value: object) -> float | str:
    """A number or text of a class that extends Python's own, such as numpy's; a path as text."""
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str | PurePath):
        return str(value)
    raise TypeError(f"an event cannot hold {value!r}")


def log_rows(stored: Sequence[StoredRow]) -> list[LogRow]:
    """The rows with their events. Each kind is read in one go, faster than by a `from_json` for
    each row.
    """
    if not stored:
        return []

    positions, runs, times, kinds, bodies, *_ = zip(*stored, strict=True)
    of_kind: defaultdict[str, list[str]] = defaultdict(list)
    for kind, body in zip(kinds, bodies, strict=True):
        of_kind[kind].append(body)
    events = dict[str, Iterator[Event]]()

    for kind, texts in of_kind.items():
        decoded = list[Event]()
        if kind in KINDS and kind not in _FORMER_FIELDS:
            with suppress(*_NOT_READ):
                # The class is known at run time only.
                list_of_kind: Any = GenericAlias(list, (KINDS[kind],))
                decoded = _decoder(list_of_kind).decode(f"[{','.join(texts)}]")
        # A damaged body may hold several values.
        if len(decoded) != len(texts):
            decoded = [from_json(kind, text) for text in texts]
        events[kind] = iter(decoded)

    in_order = [next(events[kind]) for kind in kinds]
    return list(map(LogRow, positions, runs, times, in_order))


def job_of(rows: Sequence[StoredRow]) -> str:
    """The job of a run. BrokenLog: the run has lost its beginning."""
    (began,) = log_rows(rows[:1])
    if not isinstance(began.event, RunBegan):
        raise BrokenLog(
            f"event log is damaged: the beginning of run {began.run} is lost (spotctl log check)"
        )
    return began.event.job


def from_json(kind: str, body: str) -> Event:
    """The event of a kind and a body. Raises BrokenLog for unknown kinds and damaged bodies."""
    kind = _FORMER_KINDS.get(kind, kind)
    for former, name in _FORMER_FIELDS.get(kind, {}).items():
        body = body.replace(f'"{former}":', f'"{name}":', 1)
    if kind not in KINDS:
        raise BrokenLog(
            f"the event log contains an unknown event {kind!r}; upgrade spotctl to read it"
        )

    of_kind: Any = KINDS[kind]
    try:
        event: Event = _decoder(of_kind).decode(body)
    except _NOT_READ as error:
        raise BrokenLog(
            f"the event log contains a damaged {kind}: {error} (spotctl log check)"
        ) from error

    return event
