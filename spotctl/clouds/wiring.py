"""Composition root: builds the adapters that the settings ask for, from the parts of the clouds'
packages.

`spotctl.home.cloud` lists all parts; the protocols below say what each has. `SeveralClouds` is
several clouds as one provider.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from pricing_data.known_clouds import cloud_names, has_part, part_of
from pricing_data.market import Market, is_region_of
from spotctl.clouds.errors import (
    NOT_KEPT,
    NotFound,
    NotPermitted,
    PartlyListed,
    ProviderError,
    each,
)
from spotctl.clouds.provider import (
    CloudProvider,
    Forwarded,
    Machine,
    MachineRequest,
    Resource,
)
from spotctl.home.cloud import rented_clouds
from spotctl.home.errors import BadRequest
from spotctl.home.wall_clock import WallClock

if TYPE_CHECKING:
    from datetime import datetime

    from bidbrain.outbid.record import HostRecord
    from pricing_data.library import Library
    from pricing_data.sources.base import Effort, Source, SourceNeeds
    from pricing_data.store import PriceStore
    from spotctl.clouds.bills import ExportFormat, FocusExport
    from spotctl.clouds.catalog_history import CatalogHistory
    from spotctl.clouds.doctor import Finding
    from spotctl.clouds.errors import Answers
    from spotctl.clouds.local.provider import LocalProvider
    from spotctl.clouds.remote.agents import RemoteAgents
    from spotctl.clouds.remote.prices import PriceBook
    from spotctl.files.job.spec import JobSpec
    from spotctl.home.config import Settings


def price_store(settings: Settings, on_wait: Callable[[], None] = lambda: None) -> PriceStore:
    """The price store under the home; `on_wait` is called while another process writes to it."""
    from pricing_data.store import PriceStore

    return PriceStore(settings.price_store, on_wait, _remark_once)


@cache
def _remark_once(text: str) -> None:
    """Says once on stderr that the store was repaired; a command may open it several times."""
    sys.stderr.write(f"spotctl: {text}\n")


def library(settings: Settings) -> Library:
    """All stored market data."""
    from pricing_data.library import Library

    return Library(price_store(settings))


def sources(settings: Settings, clouds: Iterable[str] = ()) -> list[Source]:
    """The price sources of these clouds, or of all."""
    names = tuple(dict.fromkeys(clouds)) or rented_clouds()
    if unknown := [cloud for cloud in names if cloud not in rented_clouds()]:
        cure = f"prices can be fetched from {', '.join(rented_clouds())}"
        raise BadRequest(f"unknown cloud {unknown[0]!r}; {cure}")
    return [prices_of(cloud).source(settings) for cloud in names]


def catalog_histories(
    settings: Settings, clouds: Iterable[str], most_bytes: int
) -> list[CatalogHistory]:
    """The history of the public catalog, of these clouds or of all that it prices."""
    from spotctl.clouds.catalog_history import CatalogHistory

    named = tuple(dict.fromkeys(clouds))
    priced = [cloud for cloud in rented_clouds() if hasattr(prices_of(cloud), "catalog_terms")]
    if unknown := [cloud for cloud in named if cloud not in priced]:
        problem = f"the catalog's history is not read for {unknown[0]!r}"
        raise BadRequest(f"{problem}; it is for {', '.join(priced)}")
    url, folder = settings.price_catalog_repository, settings.home / "catalog" / "history"
    return [
        CatalogHistory(
            cloud,
            url,
            folder,
            most_bytes,
            lambda: library(settings).catalog,
            *part_of(cloud, "prices").catalog_terms(),
        )
        for cloud in named or priced
    ]


def provider_of(settings: Settings, spec: JobSpec) -> CloudProvider:
    """The clouds on which a job may rent as one provider, even if there are none; or the local
    market.
    """
    if spec.is_local:
        return local_provider(settings, spec)
    return cloud_provider(settings, spec.resources.clouds, spec.resources.regions)


def cloud_provider(
    settings: Settings,
    clouds: Iterable[str],
    regions: Sequence[str] = (),
    answers: Answers = NOT_KEPT,
) -> CloudProvider:
    """Real clouds as one provider, in these regions or all; the provider signs in at its first use.
    With `answers` that are kept, it is to change nothing."""
    from spotctl.clouds.remote.agents import RemoteAgents
    from spotctl.clouds.remote.prices import PriceBook

    clock = WallClock()
    agents = RemoteAgents(settings.home / "machines", clock)
    prices = PriceBook(partial(library, settings), clock.now)
    providers: dict[str, CloudProvider] = {}
    for cloud in clouds:
        own = tuple(region for region in regions if is_region_of(cloud, region))
        part: ProviderPart = cast("ProviderPart", part_of(cloud, "provider"))
        providers[cloud] = part.provider(settings, own, agents, prices, answers)

    return next(iter(providers.values())) if len(providers) == 1 else SeveralClouds(providers)


def local_provider(settings: Settings, spec: JobSpec) -> LocalProvider:
    """The local market, with a job's settings."""
    from pricing_data.units import SECOND
    from spotctl.clouds.local.provider import LocalProvider, LocalSettings
    from spotctl.clouds.local.replayed import Replayed

    local, known = spec.local, library(settings)

    def market() -> Replayed:
        from pricing_data.library import Selection

        return Replayed.of(known.table(known.require(Selection(clouds=("local",)))))

    chosen = LocalSettings(local.warning / SECOND / local.speed, local.unwarned, local.seed)
    return LocalProvider(settings.home / "local", market, chosen)


class PricesPart(Protocol):
    """Where a cloud's prices come from. Importing it imports no SDK."""

    NEEDS: tuple[SourceNeeds, ...]
    """The data of its sources, and the account that each needs."""
    EFFORTS: Mapping[str, Effort]
    """About how much each task of a fetch asks for."""
    source: Callable[[Settings], Source]
    """The cloud's prices, fetched with these settings."""


class ProviderPart(Protocol):
    """Rents a cloud's machines."""

    provider: Callable[[Settings, tuple[str, ...], RemoteAgents, PriceBook, Answers], CloudProvider]
    """The cloud in these regions, or in all; it signs in at its first use. With answers that are
    kept, it changes nothing, and may leave out what was asked before."""


class DoctorPart(Protocol):
    """Checks whether a cloud is ready."""

    SETUP: str
    """How to configure the cloud on this computer."""
    POLICIES: Mapping[str, Callable[[Settings], dict[str, Any]]]
    """Documents of minimal permissions by name."""
    is_configured: Callable[[Settings], bool]
    """Whether the cloud is configured, as far as this computer knows."""
    findings: Callable[[Settings, Answers], Iterator[Finding]]
    """All checks. Raises `CloudError` if further checks are impossible."""


class BucketsPart(Protocol):
    """A cloud's object store for the launcher; the agent has the part `storage`.

    Each call ends with the identity that makes it; StoreRefused: this identity may not.
    """

    LAUNCHER: Any
    """The launcher's identity, as the cloud's part `storage` asks for it."""
    region_of: Callable[[str, Any], str]
    """The region of the bucket of this name; empty if it is in several, or the store does not
    say."""
    copy: Callable[[str, str, str, Any], None]
    """Has the store copy an object of this name from one of its buckets to another; it appears when
    it is whole. NoSuchObject, or another StoreRefused: there is no such object or bucket, or the
    store does not."""
    drop_abandoned: Callable[[str, str, datetime, Any], None]
    """Drops the parts of uploads, to a bucket and below a prefix, that began before this moment and
    have not ended."""


def prices_of(cloud: str) -> PricesPart:
    return cast("PricesPart", part_of(cloud, "prices"))


def recorded_hosts(
    settings: Settings, cloud: str, since: int, until: int
) -> Mapping[Market, HostRecord]:
    """The snapshots of hosts of a cloud's markets between two moments; empty where the highest bid
    does not decide.
    """
    if not has_part(cloud, "offers"):
        return {}
    offers = part_of(cloud, "offers")
    if not hasattr(offers, "recorded"):
        return {}
    recorded: Mapping[Market, HostRecord] = offers.recorded(settings, since, until)
    return recorded


def said_of_hosts(
    what: str, settings: Settings, clouds: Iterable[str], until: int
) -> Mapping[Market, Any]:
    """Facts of the hosts of markets from fetches before a moment: which they have `left_out`, by the
    reason, or what `traffic` costs; empty where a cloud's offers are no hosts.
    """
    said: dict[Market, Any] = {}
    for cloud in clouds:
        if has_part(cloud, "offers") and hasattr(offers := part_of(cloud, "offers"), what):
            said |= getattr(offers, what)(settings, until)
    return said


def doctor_of(cloud: str) -> DoctorPart:
    return cast("DoctorPart", part_of(cloud, "doctor"))


def buckets_of(cloud: str) -> BucketsPart:
    return cast("BucketsPart", part_of(cloud, "buckets"))


def bill_formats() -> dict[str, ExportFormat]:
    """How the bills of each cloud are read whose bills can be read."""
    clouds = (cloud for cloud in cloud_names() if has_part(cloud, "bills"))
    return {cloud: part_of(cloud, "bills").FORMAT for cloud in clouds}


def focus_exports() -> tuple[FocusExport, ...]:
    """How the clouds that export FOCUS use its columns."""
    parts = (part_of(cloud, "bills") for cloud in bill_formats())
    return tuple(part.FOCUS for part in parts if hasattr(part, "FOCUS"))


T = TypeVar("T")


class ToItsCloud(Forwarded):
    """A call that is passed on to the cloud of its first argument: a market, a machine, or the id
    of a machine.
    """

    def __get__(self, provider: Any, owner: type) -> Any:  # noqa: ANN401 - what the cloud has
        return self if provider is None else partial(provider.pass_on, self._name)


class SeveralClouds(WallClock, CloudProvider):
    """Passes each call to the cloud that it concerns; lists combine the answers of all clouds that
    answer.
    """

    prices: Any = ToItsCloud()
    holdings: Any = ToItsCloud()
    hosts: Any = ToItsCloud()
    raise_bid: Any = ToItsCloud()
    link: Any = ToItsCloud()
    prepare: Any = ToItsCloud()
    boot_sign: Any = ToItsCloud()
    console: Any = ToItsCloud()
    invocation: Any = ToItsCloud()
    output: Any = ToItsCloud()
    output_times: Any = ToItsCloud()

    def __init__(self, clouds: Mapping[str, CloudProvider]) -> None:
        self._clouds = clouds
        self._refusing: dict[str, set[str]] = {}
        self.name = "+".join(clouds)

    def offers(self) -> tuple[Market, ...]:
        return tuple(chain.from_iterable(cloud.offers() for cloud in self._clouds.values()))

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        """See `CloudProvider`. NotPermitted: every cloud refuses; if some do, the run continues
        with the others.
        """
        cloud = self._of(request.market)
        return self._permitted("create", request.market.cloud, partial(cloud.create, request))

    def list(self, tags: Mapping[str, str]) -> tuple[Machine, ...]:
        calls = {name: partial(cloud.list, tags) for name, cloud in self._clouds.items()}
        return tuple(self._listed(calls))

    def terminate(self, ids: Sequence[str]) -> None:
        """See `CloudProvider`. Asks all clouds, even if one fails; then raises the first
        failure."""
        calls = []
        for cloud, own in _by_cloud((id_, id_) for id_ in ids):
            if cloud in self._clouds:
                call = partial(self._clouds[cloud].terminate, own)
                calls.append(partial(self._permitted, "terminate", cloud, call))
        each(calls)

    def admit_ssh(self, tags: Mapping[str, str], ssh_from: Sequence[str]) -> tuple[str, ...]:
        changed = list[str]()
        for cloud in self._clouds.values():
            changed += cloud.admit_ssh(tags, ssh_from) or ()
        return tuple(changed)

    def resources(self, tags: Mapping[str, str]) -> tuple[Resource, ...]:
        calls = {name: partial(cloud.resources, tags) for name, cloud in self._clouds.items()}
        return tuple(self._listed(calls))

    def remove(self, resources: Sequence[Resource]) -> None:
        """See `CloudProvider`. Asks all clouds, even if one fails; then raises the first
        failure."""
        calls = []
        for cloud, own in _by_cloud((resource.id, resource) for resource in resources):
            if cloud in self._clouds:
                calls.append(partial(self._clouds[cloud].remove, own))
        each(calls)

    @property
    def look_at_hosts_every(self) -> int | None:
        spans = (cloud.look_at_hosts_every for cloud in self._clouds.values())
        return min((span for span in spans if span is not None), default=None)

    def close(self) -> None:
        for cloud in self._clouds.values():
            cloud.close()

    def _listed(self, calls: Mapping[str, Callable[[], Sequence[T]]]) -> Sequence[T]:
        """The lists of all clouds, joined. PartlyListed: some did not answer, or only in part."""
        items, failures, parts = list[T](), list[ProviderError](), list[str]()
        for cloud, call in calls.items():
            try:
                items += call()
            except PartlyListed as error:
                items += error.listed
                failures.append(error)
                parts += error.parts
            except ProviderError as error:
                failures.append(error)
                parts.append(f"{cloud}:")

        if not failures:
            return items
        if parts == [f"{cloud}:" for cloud in self._clouds]:
            raise failures[0]
        raise PartlyListed(failures[0], items, parts) from failures[0]

    def _permitted(self, kind: str, cloud: str, call: Callable[[], T]) -> T:
        """The answer of a cloud to a kind of call. NotPermitted: no cloud allows it."""
        refusing = self._refusing.setdefault(kind, set())
        try:
            answer = call()
        except NotPermitted as error:
            refusing.add(cloud)
            if refusing >= self._clouds.keys():
                raise
            raise ProviderError(f"{error}; the run continues with the other clouds") from error

        refusing.discard(cloud)
        return answer

    def _of(self, subject: Market | Machine | str) -> CloudProvider:
        """The cloud of a market, of a machine, or of a machine's id. NotFound: it is none of these."""
        about = subject.id if isinstance(subject, Machine) else subject
        cloud = about.cloud if isinstance(about, Market) else about.partition(":")[0]
        if cloud not in self._clouds:
            raise NotFound(f"{cloud!r} is not one of {', '.join(self._clouds)}")
        return self._clouds[cloud]

    def pass_on(
        self, name: str, subject: Market | Machine | str, *arguments: object, **named: object
    ) -> object:
        """The answer to a call of this name, by the cloud that the call is about."""
        return getattr(self._of(subject), name)(subject, *arguments, **named)


def _by_cloud(named: Iterable[tuple[str, T]]) -> Iterable[tuple[str, list[T]]]:
    """The items of each cloud; the ids name the clouds."""
    groups: dict[str, list[T]] = defaultdict(list)
    for id_, item in named:
        groups[id_.partition(":")[0]].append(item)
    return groups.items()
