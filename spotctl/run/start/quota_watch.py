"""Notices when another run of the home has ended, and what part of the quotas this run may then use."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from spotctl.clouds.wiring import library
from spotctl.home import account_quotas
from spotctl.home.paths import Paths
from spotctl.home.quotas import quotas_from
from spotctl.home.wall_clock import wall_us
from spotctl.log.statuses import latest_runs
from spotctl.log.store import EventLog
from spotctl.planning.quota_use import grown

if TYPE_CHECKING:
    from pricing_data.catalog import Catalog
    from spotctl.home.config import Settings
    from spotctl.log.state import RunState


@dataclass(slots=False)
class QuotaWatch:
    """Looks at the logs of other runs whenever this one decides; `_read` are their states so far."""

    settings: Settings
    _read: dict[str, RunState] = field(default_factory=dict)

    def __call__(self, state: RunState) -> str | None:
        """The parts that the run may use from now on; None if they have not changed."""
        if not state.quotas:
            return None
        before = {run for run, one in self._read.items() if one.ended is None}
        others = self._others(state)
        if not before - others.keys():
            return None
        parts, now = quotas_from(state.quotas), wall_us()
        spot = grown(
            [one for one in parts if one.spot],
            account_quotas.known(self.settings, now),
            state.spot_machines,
            [one.spot_machines for one in others.values()],
            self._catalog,
        )
        on_demand = grown(
            [one for one in parts if not one.spot],
            account_quotas.known(self.settings, now, spot=False),
            state.on_demand_machines,
            [one.on_demand_machines for one in others.values()],
            self._catalog,
        )
        text = ", ".join(map(str, (*spot, *on_demand)))
        return None if text == state.quotas else text

    def shared(self, state: RunState) -> bool:
        """Whether another run of the home holds machines, which may fill a quota that this one needs."""
        return any(one.alive for one in self._others(state).values())

    def _others(self, state: RunState) -> dict[str, RunState]:
        """The other runs that have not ended."""
        with EventLog(Paths(self.settings.home).log) as log:
            self._read = {one.run: one for one in latest_runs(log, self._read) if one.run != state.run}
        return {run: one for run, one in self._read.items() if one.ended is None}

    @cached_property
    def _catalog(self) -> Catalog:
        return library(self.settings).catalog
