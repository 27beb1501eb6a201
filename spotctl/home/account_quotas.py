"""What clouds said that an account may rent, kept in the home for a day, and together with it what the settings say.

`spotctl doctor` and `spotctl launch` read quotas from the clouds; plans, which need no network, read them here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pricing_data.atomic_write import atomic_write
from pricing_data.units import DAY
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.home.quotas import Quota, quotas_from


@dataclass(frozen=True, slots=True)
class ReadQuota:
    """A quota, and when its cloud stated it."""

    quota: Quota
    read: int


def known(settings: Settings, now: int, *, spot: bool = True) -> tuple[Quota, ...]:
    """The quotas of spot or of on-demand machines that hold: those of the settings, and those that clouds stated where
    the settings state none."""
    every = (*settings.quotas, *(one.quota for one in stated(settings, now)))
    return tuple(one for one in every if one.spot is spot)


def stated(settings: Settings, now: int) -> list[ReadQuota]:
    """What clouds stated in the last day, without what the settings state instead."""
    own = {one.name for one in settings.quotas}
    return [one for one in read_lately(settings, now) if one.quota.name not in own]


def read_lately(settings: Settings, now: int) -> list[ReadQuota]:
    """What clouds stated in the last day."""
    return [one for one in _kept(Paths(settings.home)).values() if now - DAY < one.read <= now]


def keep(settings: Settings, read: Iterable[Quota], now: int) -> None:
    """Keeps what a cloud stated just now, in place of what it stated earlier."""
    paths = Paths(settings.home)
    kept = _kept(paths) | {one.name: ReadQuota(one, now) for one in read}
    rows = {name: {"amount": f"{one.quota.amount} {one.quota.unit}", "read": one.read} for name, one in kept.items()}
    settings.home.mkdir(parents=True, exist_ok=True)
    with atomic_write(paths.quotas) as new:
        new.write_text(json.dumps(rows, indent=2))


def _kept(paths: Paths) -> dict[str, ReadQuota]:
    """What the file holds. A file that cannot be read is as good as none: clouds state their quotas again."""
    try:
        rows: dict[str, Any] = json.loads(paths.quotas.read_text())
        quotas = quotas_from({name: row["amount"] for name, row in rows.items()})
        return {one.name: ReadQuota(one, int(row["read"])) for one, row in zip(quotas, rows.values(), strict=True)}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
