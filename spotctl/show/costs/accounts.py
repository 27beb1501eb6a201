"""Accounts: each run with its timeline and its costs. Those of ended runs are kept in a file next to the log.

A kept account saves reading the events again, and its rows are decoded only where they are needed: most reports need
their sums. It is used only if the run's events, and the code that reads them, are unchanged. So a correction, a
repaired log or another version replaces the account, and the file can be deleted at any time.
"""

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import msgspec

import bidbrain
import pricing_data
from pricing_data.atomic_write import WriteFailed, atomic_write
from pricing_data.errors import PricingDataError
from pricing_data.market import Market
from spotctl.home.config import Settings
from spotctl.home.paths import PACKAGE, Paths
from spotctl.log import store
from spotctl.log.ledger.rows import ChargeKind, LedgerRow, Use
from spotctl.show.costs.cost import RunPart
from spotctl.show.costs.figures import Sums
from spotctl.show.costs.run_timeline import RunTimeline

if TYPE_CHECKING:
    from spotctl.log.events import RowsLost
    from spotctl.log.ledger_reader import RunRead

MIN_FREE_BYTES = 256 << 20
"""Disk space that stays free for what runs must write."""

_CODE_FOLDERS = (
    *(PACKAGE / folder for folder in ("log", "log/ledger", "files/job", "show/costs")),
    Path(bidbrain.__path__[0], "billing"),
    Path(pricing_data.__path__[0]),
)
"""Folders with the code that makes rows and timelines from events; if any of it changes, no kept account is used."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """Runs with their costs, and what repairs of the log have dropped that may be of any run."""

    runs: Sequence[RunPart] = ()
    lost: "tuple[RowsLost, ...]" = ()


def accounts(settings: Settings, jobs: Collection[str] = (), elsewhere: Collection[str] = ()) -> Accounts:
    """The runs of some jobs, or of all; active runs up to now. To those `elsewhere`, another computer attends."""
    paths = Paths(settings.home)
    if not store.exists(paths.log):
        return Accounts()
    with store.EventLog(paths.log) as log, log.snapshot():
        log.verify()
        before = _read_kept(paths.costs)
        digests = log.digests(before.digests if before else None)
        kept = {digest: _part(stored) for digest, stored in before.runs.items()} if before else {}
        known = {run: kept[digest] for run, digest in digests.of_run.items() if digest in kept}
        made = _from_events(log, settings, jobs, known, elsewhere) if len(known) < len(digests.of_run) else {}
        lost = log.losses()
    by_run = known | made
    final = {digests.of_run[run]: part for run, part in by_run.items() if _is_final(part)}
    if len(final) > len(known) or (before and before.digests.place != digests.place):
        _keep(paths.costs, digests, final)
    return Accounts([part for part in by_run.values() if not jobs or part.run.job in jobs], lost)


def _is_final(part: RunPart) -> bool:
    """Whether the account follows from the log alone: the run has ended, and its prices are recorded."""
    return isinstance(part.rows, _KeptRows) or (not part.run.is_running and all(row.settled for row in part.rows))


def _from_events(
    log: store.EventLog,
    settings: Settings,
    jobs: Collection[str],
    known: Collection[str],
    elsewhere: Collection[str],
) -> dict[str, RunPart]:
    """The accounts of some jobs' runs, without those that are known."""
    from spotctl.log.ledger_reader import read_from

    runs = read_from(log, settings, jobs, known, elsewhere)
    return {run.state.run: RunPart.whole(_timeline(run), run.ledger.rows) for run in runs}


def _timeline(run: "RunRead") -> RunTimeline:
    from spotctl.show.costs.timelines import timeline_of

    return replace(timeline_of(run.events, run.state), is_least=run.ledger.is_least)


# -- the file ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Columns:
    """Rows by columns; a row names the position of its market, because most rows have the same few markets."""

    markets: list[Market]
    columns: dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class _KeptRows(Sequence[LedgerRow]):
    """Rows that are decoded each time they are read."""

    length: int
    content: msgspec.Raw

    def __iter__(self) -> Iterator[LedgerRow]:
        return _rows(msgspec.json.decode(self.content, type=_Columns))

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> LedgerRow: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[LedgerRow]: ...

    def __getitem__(self, index: int | slice) -> LedgerRow | Sequence[LedgerRow]:
        return tuple(self)[index]


@dataclass(frozen=True, slots=True)
class _Stored:
    """An account; its rows stay encoded."""

    timeline: RunTimeline
    sums: Sums
    length: int
    rows: msgspec.Raw


@dataclass(frozen=True, slots=True)
class _Kept:
    """The accounts of ended runs by the digests of their events, and the digests of all runs."""

    digests: store.LogDigests
    runs: dict[str, _Stored]


def _read_kept(path: Path) -> _Kept | None:
    """The content of a file; None if the file is damaged or comes from other code."""
    with suppress(OSError, msgspec.MsgspecError):
        head, _, content = path.read_bytes().partition(b"\n")
        if head == _head(content):
            # The head matches only what this very code wrote, so the columns need no check.
            return msgspec.json.decode(content, type=_Kept, dec_hook=lambda _, text: Fraction(text))
    return None


def _part(stored: _Stored) -> RunPart:
    return RunPart(stored.timeline, _KeptRows(stored.length, stored.rows), stored.sums)


def _stored(part: RunPart) -> _Stored:
    rows = part.rows
    content = rows.content if isinstance(rows, _KeptRows) else msgspec.Raw(msgspec.json.encode(_columns(rows)))
    return _Stored(part.run, part.sums, len(rows), content)


def _keep(path: Path, digests: store.LogDigests, final: Mapping[str, RunPart]) -> None:
    """Writes the file, if there is room for it; otherwise the next report reads the events again."""
    with suppress(OSError, OverflowError, UnicodeError, WriteFailed, PricingDataError):
        if shutil.disk_usage(path.parent).free < MIN_FREE_BYTES:
            return
        kept = _Kept(digests, {digest: _stored(part) for digest, part in final.items()})
        content = msgspec.json.encode(kept, enc_hook=str)
        with atomic_write(path) as out:
            out.write_bytes(_head(content) + b"\n" + content)


def _head(content: bytes) -> bytes:
    return f"{_code()} {blake2b(content, digest_size=16).hexdigest()}".encode()


@cache
def _code() -> str:
    digest = blake2b(digest_size=16)
    for folder in _CODE_FOLDERS:
        # An installation may be without sources; one in an archive raises OSError here, and nothing is kept.
        for path in sorted(folder.iterdir()):
            if path.suffix in (".py", ".pyc"):
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _columns(rows: Sequence[LedgerRow]) -> _Columns:
    columns = dict(zip(LedgerRow._fields, map(list, zip(*rows, strict=True)), strict=False))
    markets = list(dict.fromkeys(row.market for row in rows))
    number = {market: i for i, market in enumerate(markets)}
    return _Columns(markets, columns | {"market": [number[row.market] for row in rows]})


_KINDS, _USES = {kind.value: kind for kind in ChargeKind}, {use.value: use for use in Use}


def _rows(stored: _Columns) -> Iterator[LedgerRow]:
    columns: dict[str, Any] = dict(stored.columns)
    for name, values in (("market", stored.markets), ("kind", _KINDS), ("use", _USES)):
        columns[name] = [values[key] for key in columns.get(name, ())]
    return map(LedgerRow, *(columns.get(name, ()) for name in LedgerRow._fields))
