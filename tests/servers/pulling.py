"""Runs a task of a source to its end, as a fetch does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pricing_data.errors import CloudError
from pricing_data.fetched_rows import FetchedRows, PriceEvent
from pricing_data.sources.base import FetchTask
from pricing_data.store.table import PriceTable


@dataclass
class Pulled:
    """The steps of a task, and its error if it failed."""

    steps: list[FetchedRows] = field(default_factory=list)
    error: CloudError | None = None

    @property
    def all(self) -> FetchedRows:
        return FetchedRows.joined(self.steps)

    @property
    def observed(self) -> list[PriceEvent]:
        return observed_events(self.all)

    @property
    def events(self) -> list[PriceEvent]:
        batch = self.all.prices
        columns = zip(
            batch.codes.tolist(), batch.times.tolist(), batch.prices.tolist(), strict=True
        )
        return [PriceEvent(batch.markets[code], time, price) for code, time, price in columns]


def observed_events(fetched: FetchedRows) -> list[PriceEvent]:
    """The prices that were observed: every change, and the last price again at the end of its
    observation.
    """
    table = replace(PriceTable.of(fetched.prices), watched=fetched.watched)
    return [
        PriceEvent(series.market, time, price)
        for series in table
        for time, price in zip(series.times.tolist(), series.prices.tolist(), strict=True)
    ]


def pulled(task: FetchTask) -> Pulled:
    """Runs a task to its end; keeps the steps before an error."""
    outcome = Pulled()
    try:
        outcome.steps.extend(task.pull())
    except CloudError as error:
        outcome.error = error
    return outcome
