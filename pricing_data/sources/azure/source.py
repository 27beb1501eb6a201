"""`AzureSource`: the tasks of a fetch from Azure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from pricing_data.errors import SourceError, SourceUnavailable
from pricing_data.fetched_rows import FetchedRows, PriceBatch
from pricing_data.market import api_region
from pricing_data.sources.azure import spot
from pricing_data.sources.azure.offers import PriceSheet
from pricing_data.sources.azure.records import named, text
from pricing_data.sources.azure.settings import AzureSettings
from pricing_data.sources.azure.sizes import read_type
from pricing_data.sources.base import FetchRequest, Task
from pricing_data.sources.rejects import Rejects
from pricing_data.units import Span

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

    from pricing_data.sources.azure.account import Account
    from pricing_data.sources.azure.retail import RetailPrices

ALL_REGIONS = "-"
"""Where a task belongs that fails for every region at once, for want of an account."""


class AzureSource:
    """Spot and on-demand prices of machines from the public price list, and more with an account.

    The account (a `credential` of azure-identity, or what `DefaultAzureCredential` finds) brings machine types, 90 days
    of spot prices and eviction rates. Without one, a single task says what is missing and the price list goes on.
    """

    cloud = "azure"

    def __init__(self, settings: AzureSettings | None = None, credential: TokenCredential | None = None) -> None:
        self._settings = settings or AzureSettings()
        self._credential = credential

    def tasks(self, request: FetchRequest) -> list[Task]:
        """Four pieces per region with an account, one without."""
        try:
            account = self._sign_in()
        except SourceError as error:
            regions = _asked_regions(request) or self._retail().regions()
            denied = Task(self.cloud, ALL_REGIONS, "spot history, eviction rates, machine types", partial(_fail, error))
            return [*(self._price_task(request, region) for region in regions), denied]
        tasks = []
        for region in _asked_regions(request) or self._account_regions(account):
            tasks += [self._price_task(request, region), *self._account_tasks(account, request, region)]
        return tasks

    def _retail(self) -> RetailPrices:
        from pricing_data.sources.azure.retail import RetailPrices

        return RetailPrices(self._settings)

    def _sign_in(self) -> Account:
        self._settings.chosen_subscription()
        from pricing_data.sources.azure.account import Account

        return Account.sign_in(self._settings, self._credential)

    def _account_regions(self, account: Account) -> tuple[str, ...]:
        """The regions with spot markets, else those of the price list: it names them too where the account may not."""
        try:
            pages = list(account.rows("Azure regions", spot.regions_query()))
        except SourceError:
            pages = []
        rejects = Rejects("Azure regions")
        names = rejects.good(lambda row: text(row, "location"), chain.from_iterable(pages))
        return tuple(dict.fromkeys(map(_region, names))) or self._retail().regions()

    def _price_task(self, request: FetchRequest, region: str) -> Task:
        return Task(self.cloud, region, "prices", partial(self._prices, request, region))

    def _account_tasks(self, account: Account, request: FetchRequest, region: str) -> Iterator[Task]:
        pulls: dict[str, Callable[[Account, FetchRequest, str], Iterator[FetchedRows]]] = {
            "machine types": _machine_types,
            "spot history": _spot_history,
            "eviction rates": _eviction_rates,
        }
        for what, pull in pulls.items():
            yield Task(self.cloud, region, what, partial(pull, account, request, region))

    def _prices(self, request: FetchRequest, region: str) -> Iterator[FetchedRows]:
        rejects = Rejects(f"Azure retail prices of {region}")
        sheet = PriceSheet(request)
        for page in self._retail().pages(region):
            yield sheet.harvest(rejects.good(sheet.read, page, named))
        yield sheet.in_force()
        rejects.report()
        if not sheet:
            raise SourceUnavailable(
                f"Azure retail prices of {region}: no machine is sold there (regions are written eastus, westeurope)"
            )


def _asked_regions(request: FetchRequest) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_region, request.regions)))


def _region(name: str) -> str:
    """A region in the APIs' spelling, which is letters and digits only, so that queries need not quote it."""
    return re.sub(r"[^a-z0-9]", "", api_region("azure", name))


def _fail(error: SourceError) -> Iterator[FetchedRows]:
    raise error


def _machine_types(account: Account, request: FetchRequest, region: str) -> Iterator[FetchedRows]:
    rejects = Rejects(f"Azure machine types of {region}")
    for page in account.skus(region):
        types = rejects.good(read_type, page, named)
        yield FetchedRows(types=tuple(found for found in types if request.wants_type(found.name)))
    rejects.report()


def _spot_history(account: Account, request: FetchRequest, region: str) -> Iterator[FetchedRows]:
    history = request.history("azure", region)
    begin = request.start_of(history)
    if begin >= request.until:
        return
    start = max(begin, request.until - spot.HISTORY)
    asked = f"Azure spot price history of {region}"
    rejects = Rejects(asked)
    found = False
    for page in account.rows(asked, spot.price_history_query(region)):
        events = []
        for market, entries in rejects.good(spot.read_history, page, named):
            found = True
            points = rejects.good(spot.read_point, entries, named)
            if request.wants_type(market.instance_type):
                events += spot.events_between(market, points, start, request.until)
        yield FetchedRows(prices=PriceBatch.of(events))
    rejects.report()
    # Resource Graph sometimes answers with an empty table: nothing then was learnt, and the next fetch asks again.
    if found:
        yield FetchedRows(covered={history: Span(begin, request.until)})


def _eviction_rates(account: Account, request: FetchRequest, region: str) -> Iterator[FetchedRows]:
    asked = f"Azure eviction rates of {region}"
    rejects = Rejects(asked)
    for page in account.rows(asked, spot.eviction_rates_query(region)):
        rates = rejects.good(lambda row: spot.read_eviction_rate(row, request.until), page, named)
        yield FetchedRows(interruptions=tuple(rate for rate in rates if request.wants_type(rate.market.instance_type)))
    rejects.report()
