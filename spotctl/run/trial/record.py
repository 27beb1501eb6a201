"""`Kit`, which the steps of a full trial share, and the record that they make: a line for each
step.

Nothing in the record identifies the account. Pure.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pricing_data.catalog import InstanceType
from pricing_data.library import Library, Selection
from pricing_data.market import LINUX, Market
from spotctl.clouds.provider import CloudProvider
from spotctl.home.config import Settings
from spotctl.home.installation import INSTALLATION_TAG, RUN_TAG, installation_id

FORMAT = 1

_PRIVATE: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("UUID", re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b")),
    ("ARN", re.compile(r"\barn:[\w-]+:[\w-]*:[\w-]*:\d*:[^\s,;\"')]+")),
    ("MAIL", re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+\b")),
    ("BUCKET", re.compile(r"\b(?:s3|gs|az)://[^\s,;\"')]+")),
    ("RESOURCE", re.compile(r"/(?:subscriptions|projects)/[^\s,;\"')]+")),
    ("ID", re.compile(r"\b(?:i|vol|eni|sg|subnet|vpc|sir|snap|EXT|EXP)-?[0-9a-fA-F]{8,}\b")),
    ("ADDRESS", re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?:/\d+)?\b")),
    ("ACCOUNT", re.compile(r"\b\d{12}\b")),
)
"""Parts of a cloud's texts that identify an account, whatever the account is called."""

_GENERAL = frozenset({"spotctl", "spotctl-machine", "default", "root"})
"""Names from the documentation, which identify no user."""

HOUR_SECONDS = 3600.0

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step that was carried out or skipped. `figures` are its measurements, with units in their
    names.
    """

    name: str
    outcome: str
    detail: str
    seconds: float = 0.0
    figures: Mapping[str, float | int | str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """`endpoint` is the host that answered, `versions` those of spotctl, Python and the SDK.
    `most_usd` bounds the cost of the machines, and `bill` is the comparison with a bill, once there
    is one."""

    cloud: str
    region: str
    endpoint: str
    date: str
    versions: Mapping[str, str]
    steps: tuple[StepResult, ...]
    most_usd: float
    bill: Mapping[str, Any] | None = None

    @property
    def passed(self) -> bool:
        """Whether no step failed."""
        return all(step.outcome != FAILED for step in self.steps)


def as_json(record: TrialRecord, private: Sequence[str] = ()) -> dict[str, Any]:
    """The record without anything that identifies the account: words of `private` and what clouds'
    ids look like.
    """
    steps = list[dict[str, Any]]()
    for step in record.steps:
        shown: dict[str, Any] = {"name": step.name, "outcome": step.outcome}
        shown["detail"] = redacted(step.detail, private)
        shown["seconds"] = round(step.seconds, 1)
        shown["figures"] = dict(step.figures)
        steps.append(shown)

    # Whether the cloud itself answered, rather than a server on this computer or in its network.
    here = re.fullmatch(r"localhost|[\d.]+|\[?[0-9a-f:]+\]?|[^.]*", record.endpoint)
    return {
        "format": FORMAT,
        "cloud": record.cloud,
        "region": record.region,
        "endpoint": "a server of tests" if here else record.endpoint,
        "real": here is None,
        "date": record.date,
        "versions": dict(record.versions),
        "passed": record.passed,
        "most_usd": round(record.most_usd, 4),
        "steps": steps,
        "bill": None if record.bill is None else dict(record.bill),
    }


def from_json(record: Mapping[str, Any]) -> TrialRecord:
    """A record that `as_json` wrote."""
    steps = tuple(StepResult(**step) for step in record["steps"])
    names = ("cloud", "region", "endpoint", "date", "versions", "most_usd", "bill")
    return TrialRecord(**{name: record[name] for name in names}, steps=steps)


def redacted(text: str, private: Sequence[str] = ()) -> str:
    """A text without the private words and without ids of a cloud."""
    words = {word for word in private if len(word) > 2} - _GENERAL
    for word in sorted(words, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(word)}(?!\w)", "<PRIVATE>", text)
    for name, pattern in _PRIVATE:
        text = pattern.sub(f"<{name}>", text)
    return text


def line(step: StepResult) -> str:
    """A step on one line of the terminal."""
    return f"{step.outcome:<8} {step.name:<12} {step.detail}"


class TrialFailed(Exception):
    """A step did not show what it should; the message is one line."""


class StepSkipped(Exception):
    """A step cannot be carried out with the given options; the message says what it needs."""


@dataclass
class Kit:
    """`kinds` are the types of machines to rent, one or two, and `types` all with known prices.
    `bucket` is a location in the cloud's object store, and `identity` the machines'. `runs` are
    those of the trial, and `spent_usd` is at least what it has cost."""

    cloud: str
    region: str
    settings: Settings
    known: Library
    provider: CloudProvider
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
        listed = self.known.select(chosen)
        return sorted(market for market in listed if market.os == LINUX)

    def list_price(self, type_: str) -> int:
        """Nano-dollars per hour of a type on demand."""
        return self.known.catalog.on_demand(self.markets(type_)[0]).price
