"""Quotas that clouds stated for an account, kept in the home for a day, and combined with those of
the settings.

`spotctl doctor` and `spotctl launch` read quotas from the clouds; plans, which need no network,
read the kept ones.
"""

import json
from collections.abc import Iterable
from typing import Any

from pricing_data.atomic_write import atomic_write
from pricing_data.units import DAY
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.home.quotas import Quota, quotas_from


def known(settings: Settings, now: int, *, spot: bool = True) -> tuple[Quota, ...]:
    """The quotas of spot or of on-demand machines that hold: those of the settings, and those that
    clouds stated where the settings state none."""
    every = (*settings.quotas, *stated(settings, now))
    return tuple(quota for quota in every if quota.spot is spot)


def stated(settings: Settings, now: int) -> dict[Quota, int]:
    """The quotas that clouds stated in the last day, and when, except those that the settings
    replace.
    """
    own = {quota.name for quota in settings.quotas}
    lately = read_lately(settings, now)
    return {quota: read for quota, read in lately.items() if quota.name not in own}


def read_lately(settings: Settings, now: int) -> dict[Quota, int]:
    """The quotas that clouds stated in the last day, and when."""
    kept = _read_kept(Paths(settings.home))
    return {quota: read for quota, read in kept.items() if now - DAY < read <= now}


def keep(settings: Settings, read: Iterable[Quota], now: int) -> None:
    """Keeps quotas that a cloud stated just now, in place of those that it stated earlier."""
    paths = Paths(settings.home)
    rows = dict[str, dict[str, object]]()
    for quota, moment in [*_read_kept(paths).items(), *((quota, now) for quota in read)]:
        rows[quota.name] = {"amount": f"{quota.amount} {quota.unit}", "read": moment}
    settings.home.mkdir(parents=True, exist_ok=True)
    with atomic_write(paths.quotas) as new:
        new.write_text(json.dumps(rows, indent=2))


def _read_kept(paths: Paths) -> dict[Quota, int]:
    """The quotas in the file. A file that cannot be read counts as missing: clouds state their
    quotas again.
    """
    try:
        rows: dict[str, Any] = json.loads(paths.quotas.read_text())
        quotas = quotas_from({name: row["amount"] for name, row in rows.items()})
        return {quota: int(row["read"]) for quota, row in zip(quotas, rows.values(), strict=True)}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
