"""Azure: spot and on-demand prices, machine types, and published eviction rates: the tasks of a
fetch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from pricing_data.errors import CloudError, UnknownResource
from pricing_data.fetched_rows import FetchedRows, PriceBatch
from pricing_data.market import Market, api_region
from pricing_data.series import WatchRecord
from pricing_data.sources.base import Effort, FetchRequest, FetchTask, Rejects, SourceNeeds
from pricing_data.units import Span
from spotctl.clouds.azure.cloud import AzureSettings
from spotctl.clouds.azure.prices import records
from spotctl.clouds.azure.prices.records import PriceSheet, named, read_type, text
from spotctl.clouds.errors import ApiCall, with_given

if TYPE_CHECKING:
    from spotctl.clouds.azure.session import AzureSession, TokenCredential
    from spotctl.home.config import Settings

NEEDS = (
    SourceNeeds("azure", "spot and on-demand prices", "", "retail price list; complete"),
    SourceNeeds(
        "azure",
        "spot prices of 90 days, eviction rates",
        "`az login` or AZURE_CLIENT_SECRET; AZURE_SUBSCRIPTION_ID",
    ),
)
EFFORTS = {
    "prices": Effort(12, 2_500, 6, is_whole=True),
    "spot history": Effort(3, 2_000, 2),
    "machine types": Effort(2, 1_000, 3),
}

_READ_SKUS = "Microsoft.Compute/skus/read"
_SPOT_HISTORY = "spot history"
_WITH_ACCOUNT = "spot history, eviction rates, machine types"
_READ_GRAPH = "Microsoft.ResourceGraph/resources/read"


def source(settings: Settings) -> AzureSource:
    """See `PricesPart`."""
    names = ("subscription", "management_endpoint", "retail_prices_url")
    given = {name: settings.text(f"azure_{name}") for name in names}
    access = AzureSettings(managed_identity=settings.flag("azure_managed_identity"))
    return AzureSource(with_given(access, **given))


class AzureSource:
    """Spot and on-demand prices from the public price list; with an account also machine types, 90
    days of spot prices and eviction rates.

    The account is a `credential` of azure-identity, or that found by `DefaultAzureCredential`.
    Without an account, a single task reports what is missing, and the price list is still fetched.
    """

    cloud = "azure"

    def __init__(
        self, settings: AzureSettings | None = None, credential: TokenCredential | None = None
    ) -> None:
        self._settings = settings or AzureSettings()
        self._credential = credential

    def tasks(self, request: FetchRequest) -> list[FetchTask]:
        """Four tasks per region with an account, one without."""
        from spotctl.clouds.azure.prices import retail  # loads httpx

        regions = tuple(dict.fromkeys(map(_region, request.regions)))
        pulls: dict[str, Callable[[str], Iterator[FetchedRows]]] = {}
        failed = []
        try:
            self._settings.chosen_subscription()  # fails without importing the SDK
            from spotctl.clouds.azure.session import AzureSession

            session = AzureSession.sign_in(self._settings, self._credential)
        except CloudError as error:
            regions = regions or retail.regions(self._settings)
            failed = [FetchTask.failed(self.cloud, _WITH_ACCOUNT, error, optional=True)]
        else:
            if not regions:
                # Those with spot markets; where the account may not list them, those of the price
                # list.
                call = ApiCall("Azure regions", _READ_GRAPH)
                try:
                    pages = list(session.rows(call, records.REGIONS_QUERY))
                except CloudError:
                    pages = []
                located = partial(text, name="location")
                names = Rejects(call.what).good(located, chain.from_iterable(pages))
                listed = tuple(dict.fromkeys(map(_region, names)))
                regions = listed or retail.regions(self._settings)

            pulls = {
                "machine types": partial(_machine_types, session, request),
                _SPOT_HISTORY: partial(_spot_history, session, request),
                "eviction rates": partial(_eviction_rates, session, request),
            }

        tasks = []
        for region in regions:
            prices = partial(self._prices, request, region)
            tasks.append(FetchTask(self.cloud, region, "prices", prices, spot_prices=True))
            for what, pull in pulls.items():
                rows = partial(pull, region)
                tasks.append(
                    FetchTask(self.cloud, region, what, rows, spot_prices=what == _SPOT_HISTORY)
                )

        return [*tasks, *failed]

    def _prices(self, request: FetchRequest, region: str) -> Iterator[FetchedRows]:
        from spotctl.clouds.azure.prices import retail

        subject = f"Azure retail prices of {region}"
        rejects, sheet = Rejects(subject), PriceSheet(request)
        for page in retail.pages(self._settings, subject, f"armRegionName eq '{region}'"):
            yield sheet.rows_of(rejects.good(sheet.read, page, named))
        yield sheet.in_force()
        rejects.report()

        if not sheet:
            raise UnknownResource(
                f"{subject}: no machine is sold there",
                "check the region's name (for example eastus, westeurope)",
            )


def _region(name: str) -> str:
    """A region in the APIs' spelling: letters and digits only, so that queries need not quote
    it."""
    return re.sub(r"[^a-z0-9]", "", api_region("azure", name))


def _machine_types(
    session: AzureSession, request: FetchRequest, region: str
) -> Iterator[FetchedRows]:
    call = ApiCall(f"Azure machine types of {region}", _READ_SKUS)
    rejects = Rejects(call.what)
    for page in session.pages(call, "compute.resource_skus.list", filter=f"location eq '{region}'"):
        types = rejects.good(read_type, page, named)
        yield FetchedRows(types=tuple(t for t in types if request.wants_type(t.name)))
    rejects.report()


def _spot_history(
    session: AzureSession, request: FetchRequest, region: str
) -> Iterator[FetchedRows]:
    history = request.history("azure", region)
    begin = request.start_of(history)
    if begin >= request.until:
        return

    start = max(begin, request.until - records.HISTORY)
    call = ApiCall(f"Azure spot price history of {region}", _READ_GRAPH)
    rejects = Rejects(call.what)
    is_empty = True

    for page in session.rows(call, records.rows_query(records.PRICE_HISTORY, region)):
        events = []
        watched: dict[Market, WatchRecord] = {}
        for market, entries in rejects.good(records.read_history, page, named):
            is_empty = False
            listed = rejects.good(partial(records.read_change, market), entries, named)
            if request.wants_type(market.instance_type):
                changes = records.events_between(listed, start, request.until)
                events += changes
                watched.update(
                    (e.market, WatchRecord((Span(e.time, request.until),))) for e in changes[:1]
                )
        yield FetchedRows(prices=PriceBatch.of(events), watched=watched)

    rejects.report()
    # Resource Graph sometimes answers with an empty table; the next fetch then repeats the query.
    if not is_empty:
        yield FetchedRows(covered={history: Span(begin, request.until)})


def _eviction_rates(
    session: AzureSession, request: FetchRequest, region: str
) -> Iterator[FetchedRows]:
    call = ApiCall(f"Azure eviction rates of {region}", _READ_GRAPH)
    rejects = Rejects(call.what)
    read = partial(records.read_eviction_rate, as_of=request.until)
    for page in session.rows(call, records.rows_query(records.EVICTION_RATES, region)):
        rates = rejects.good(read, page, named)
        wanted = tuple(rate for rate in rates if request.wants_type(rate.market.instance_type))
        yield FetchedRows(interruptions=wanted)

    rejects.report()
