"""The properties by which costs are grouped, and their values."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from enum import StrEnum

from pricing_data.market import Market
from spotctl.home.errors import BadRequest
from spotctl.log.ledger.account import Eviction, RunTimeline
from spotctl.log.ledger.rows import ChargeKind, LedgerRow
from spotctl.show.costs.periods import BILLING, local

UNTAGGED = "untagged"


class By(StrEnum):
    """A property by which costs are grouped."""

    JOB = "job"
    RUN = "run"
    CLOUD = "cloud"
    REGION = "region"
    TYPE = "type"
    MARKET = "market"
    PRICING = "pricing"
    """Spot, on demand or reserved."""
    KIND = "kind"
    """The kind of charge: machines by pricing, disks, addresses, traffic by destination, refunds, corrections."""
    DAY = "day"
    MONTH = "month"
    TAG = "tag"


class TagName(str):
    """A tag by whose values costs are grouped, such as `team`."""

    @property
    def value(self) -> str:
        return str(self)


Grouping = By | TagName

_WHOLE_RUNS = frozenset({By.JOB, By.RUN, By.TAG})

BY_TIME = frozenset({By.DAY, By.MONTH})
"""Groupings that depend on the time zone, and that divide a row which is in several days."""

_SPLIT_BY_PRICING = frozenset({By.TYPE, By.MARKET})
"""Spot and on-demand machines of one type are different things at different prices."""


def keeps_runs_whole(by: Iterable[Grouping]) -> bool:
    """Whether these groupings never split a run, so that its work belongs to one group."""
    return all(isinstance(grouping, TagName) or grouping in _WHOLE_RUNS for grouping in by)


def parse_by(text: str) -> tuple[Grouping, ...]:
    """The grouping in `job,cloud,team`, where `team` names a tag. Types and markets are followed by the pricing."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    known = {by.value: by for by in By}
    if not words:
        raise BadRequest(f"--by is empty; give one or more of {', '.join(known)}, or the name of a tag")
    chosen: list[Grouping] = [known.get(word) or TagName(word) for word in words]
    if _SPLIT_BY_PRICING.intersection(chosen):
        chosen.append(By.PRICING)
    return tuple(dict.fromkeys(chosen))


def check_tags(by: Iterable[Grouping], tags: Iterable[Mapping[str, str]]) -> None:
    """BadRequest unless some run has each tag that costs are grouped by; `tags` are those of all runs."""
    named = {name for of_run in tags for name in of_run}
    for grouping in by:
        if isinstance(grouping, TagName) and grouping not in named:
            tags_text = f"the name of a tag ({', '.join(sorted(named)) or 'no run has any'})"
            raise BadRequest(
                f"--by: unknown grouping {str(grouping)!r}; allowed are {', '.join(By)}, or {tags_text}; for example"
                " --by job,region"
            )


@dataclass(frozen=True, slots=True)
class Subject:
    """A row or an eviction with its run, or a run alone: all that can be assigned to a group."""

    what: LedgerRow | Eviction | None
    run: RunTimeline
    zone: tzinfo = BILLING
    """The time zone of days and months."""

    @property
    def market(self) -> Market:
        assert self.what is not None, "a run alone has no market and no time"
        return self.what.market

    @property
    def at(self) -> int:
        assert self.what is not None, "a run alone has no market and no time"
        return self.what.begin if isinstance(self.what, LedgerRow) else self.what.at

    @property
    def pricing(self) -> str:
        """Only spot machines are evicted."""
        return self.market.pricing(spot=not isinstance(self.what, LedgerRow) or self.what.spot)

    @property
    def kind(self) -> str:
        charged = self.what.kind if isinstance(self.what, LedgerRow) else ChargeKind.COMPUTE
        if charged is ChargeKind.COMPUTE:
            return f"{self.pricing} machines"
        if not isinstance(self.what, LedgerRow) or not self.what.target:
            return _KINDS[charged]
        # How far traffic went decides its price.
        cloud = self.what.target.partition("/")[0]
        return f"{_KINDS[charged]} to another {'region' if cloud == self.market.cloud else 'cloud'}"


_KINDS = {
    ChargeKind.REFUND: "refunds",
    ChargeKind.DISK: "disks",
    ChargeKind.ADDRESS: "addresses",
    ChargeKind.EGRESS: "traffic",
    ChargeKind.CORRECTION: "corrections",
    ChargeKind.UNKNOWN: "unknown",
}

_VALUES: Mapping[By, Callable[[Subject], str]] = {
    By.JOB: lambda subject: subject.run.job,
    By.RUN: lambda subject: subject.run.run,
    By.CLOUD: lambda subject: subject.market.cloud,
    By.REGION: lambda subject: subject.market.region,
    By.TYPE: lambda subject: subject.market.instance_type,
    By.MARKET: lambda subject: str(subject.market),
    By.PRICING: lambda subject: subject.pricing,
    By.KIND: lambda subject: subject.kind,
    # By the provider's clock, as in bills.
    By.DAY: lambda subject: local(subject.at, subject.zone).date().isoformat(),
    By.MONTH: lambda subject: local(subject.at, subject.zone).strftime("%Y-%m"),
    By.TAG: lambda subject: ", ".join(f"{k}={v}" for k, v in sorted(subject.run.tags.items())) or UNTAGGED,
}


def key_of(by: Sequence[Grouping], subject: Subject) -> tuple[str, ...]:
    """The values of a subject, in the order of the grouping."""
    return tuple(
        subject.run.tags.get(grouping, UNTAGGED) if isinstance(grouping, TagName) else _VALUES[grouping](subject)
        for grouping in by
    )
