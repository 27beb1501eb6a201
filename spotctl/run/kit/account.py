"""`Kit`: what the steps of a full trial share: the account, the provider, the machines to rent, and what they cost."""

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from pricing_data.catalog import InstanceType
from pricing_data.library import Library, Selection
from pricing_data.market import LINUX, Market
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.clouds.capabilities import RentingProvider
from spotctl.clouds.installation import installation_id
from spotctl.clouds.tags import INSTALLATION_TAG, RUN_TAG
from spotctl.home.config import Settings

HOUR_SECONDS = 3600.0


class TrialFailed(Exception):
    """A step did not show what it should; the message is one line."""


class StepSkipped(Exception):
    """A step cannot be carried out with the given options; the message says what it needs."""


@dataclass
class Kit:
    """`kinds` are the two types of machines to rent, and `types` all with known prices. `bucket` is a location in the
    cloud's object store, and `identity` the machines'. `runs` are those of the trial, and `spent_usd` is at least what
    it has cost."""

    cloud: str
    region: str
    settings: Settings
    known: Library
    provider: RentingProvider
    kinds: tuple[InstanceType, ...]
    types: tuple[InstanceType, ...]
    bucket: str = ""
    identity: str = ""
    cap_usd: float = 1.0
    spent_usd: float = 0.0
    runs: list[str] = field(default_factory=list)
    bare_run: str = field(default_factory=lambda: f"try-full-{secrets.token_hex(3)}")

    @property
    def folder(self) -> Path:
        """Where the jobs of the trial are written."""
        folder = self.settings.home / "try"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def tags(self) -> dict[str, str]:
        """The tags of machines that are rented without a job."""
        return {INSTALLATION_TAG: installation_id(self.settings.home), RUN_TAG: self.bare_run}

    def markets(self, type_: str) -> list[Market]:
        """The markets of a type in the region."""
        chosen = Selection(clouds=(self.cloud,), regions=(self.region,), types=(type_,))
        return sorted(market for market in self.known.select(chosen) if market.os == LINUX)

    def list_price(self, type_: str) -> int:
        """Nano-dollars per hour of a type on demand."""
        return self.known.catalog.on_demand(self.markets(type_)[0]).price

    def usd_per_hour(self, type_: str) -> float:
        """The list price of a type."""
        return self.list_price(type_) / NANOS_PER_DOLLAR

    def charge(self, usd: float) -> None:
        """Counts a cost."""
        self.spent_usd += usd

    def check_budget(self) -> None:
        """StepSkipped: the budget is reached."""
        if self.spent_usd >= self.cap_usd:
            raise StepSkipped(f"the budget of ${self.cap_usd:g} is reached")
