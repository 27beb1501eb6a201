"""What each run did and cost. For runs that have ended, it is kept next to the log, so that events are read once.

What is kept is believed only if the run's events, and the code that goes through them, are still the same to the byte.
So a correction, a repaired log or another version makes it again, and it can be deleted at any time.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

import bidbrain
import pricing_data
from pricing_data.atomic_write import WriteFailed, atomic_write
from pricing_data.errors import PricingDataError
from pricing_data.market import Market
from spotctl.home.paths import PACKAGE, Paths
from spotctl.log import store
from spotctl.log.ledger.rows import ChargeKind, LedgerRow, Use
from spotctl.show.costs.run_timeline import RunTimeline

if TYPE_CHECKING:
    from spotctl.home.config import Settings

ROOM = 256 << 20
"""Bytes of the disk that stay free for what runs must write."""

_MAKERS = (
    *(PACKAGE / folder for folder in ("log", "log/ledger", "files/job", "show/costs")),
    Path(bidbrain.__path__[0], "billing"),
    Path(pricing_data.__path__[0]),
)
"""Folders of the code that makes rows and timelines from events."""


@dataclass(frozen=True, slots=True)
class Account:
    """A run, and its rows of the ledger."""

    timeline: RunTimeline
    rows: tuple[LedgerRow, ...]

    @property
    def is_final(self) -> bool:
        """Whether it follows from the log alone: the run has ended, and its prices are recorded."""
        return not self.timeline.is_running and all(row.settled for row in self.rows)


def accounts(settings: Settings, jobs: Collection[str] = ()) -> list[Account]:
    """The runs of some jobs, or of all; active runs up to now."""
    paths = Paths(settings.home)
    if not store.exists(paths.log):
        return []
    with store.EventLog(paths.log) as log, log.unchanging():
        digests, kept = log.digests(), _kept(paths.costs)
        known = {run: kept[digest] for run, digest in digests.items() if digest in kept}
        made = _made(log, settings, jobs, known) if len(known) < len(digests) else {}
    found = known | made
    final = {digests[run]: one for run, one in found.items() if one.is_final}
    if len(final) > len(known):
        _keep(paths.costs, final)
    return [one for one in found.values() if not jobs or one.timeline.job in jobs]


def _made(log: store.EventLog, settings: Settings, jobs: Collection[str], known: Collection[str]) -> dict[str, Account]:
    from spotctl.log.ledger_reader import read_from
    from spotctl.show.costs.timelines import timeline_of

    runs = read_from(log, settings, jobs, known)
    return {one.state.run: Account(timeline_of(one.events, one.state), one.ledger.rows) for one in runs}


# -- the file ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Stored:
    """An account by columns; rows name their market by its position, because most have the same few."""

    timeline: RunTimeline
    markets: list[Market]
    columns: dict[str, list[Any]]


def _kept(path: Path) -> dict[str, Account]:
    """The accounts in a file, by the digest of their events; none if it is damaged or comes from other code."""
    with suppress(OSError, msgspec.MsgspecError):
        head, _, content = path.read_bytes().partition(b"\n")
        if head == _head(content):
            # A digest says that this very code wrote it, so that columns need no check.
            stored = msgspec.json.decode(content, type=dict[str, _Stored], dec_hook=lambda _, text: Fraction(text))
            return {digest: Account(one.timeline, _rows(one)) for digest, one in stored.items()}
    return {}


def _keep(path: Path, final: Mapping[str, Account]) -> None:
    """Writes the file. Without room for it, the next report goes through the events again."""
    with suppress(OSError, OverflowError, UnicodeError, WriteFailed, PricingDataError):
        if shutil.disk_usage(path.parent).free < ROOM:
            return
        stored = {digest: _Stored(one.timeline, *_columns(one.rows)) for digest, one in final.items()}
        content = msgspec.json.encode(stored, enc_hook=str)
        with atomic_write(path) as out:
            out.write_bytes(_head(content) + b"\n" + content)


def _head(content: bytes) -> bytes:
    return f"{_code()} {blake2b(content, digest_size=16).hexdigest()}".encode()


@cache
def _code() -> str:
    digest = blake2b(digest_size=16)
    for folder in _MAKERS:
        # An installation may be without sources; one in an archive raises OSError here, and nothing is kept.
        for path in sorted(folder.iterdir()):
            if path.suffix in (".py", ".pyc"):
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _columns(rows: Collection[LedgerRow]) -> tuple[list[Market], dict[str, list[Any]]]:
    columns = dict(zip(LedgerRow._fields, map(list, zip(*rows, strict=True)), strict=False))
    markets = list(dict.fromkeys(row.market for row in rows))
    number = {market: i for i, market in enumerate(markets)}
    return markets, columns | {"market": [number[row.market] for row in rows]}


_KINDS, _USES = {one.value: one for one in ChargeKind}, {one.value: one for one in Use}


def _rows(stored: _Stored) -> tuple[LedgerRow, ...]:
    columns: dict[str, Any] = dict(stored.columns)
    for name, values in (("market", stored.markets), ("kind", _KINDS), ("use", _USES)):
        columns[name] = [values[one] for one in columns.get(name, ())]
    return tuple(map(LedgerRow, *(columns.get(name, ()) for name in LedgerRow._fields)))
