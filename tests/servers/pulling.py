"""What a task of a source brings when it is run to its end, as the fetch runs it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pricing_data.errors import CloudError
from pricing_data.fetched_rows import FetchedRows, PriceEvent
from pricing_data.sources.base import FetchTask


@dataclass
class Pulled:
    """What a task brought, step by step, and how it failed, if it did."""

    steps: list[FetchedRows] = field(default_factory=list)
    error: CloudError | None = None

    @property
    def all(self) -> FetchedRows:
        return FetchedRows.joined(self.steps)

    @property
    def events(self) -> list[PriceEvent]:
        batch = self.all.prices
        columns = zip(batch.codes.tolist(), batch.times.tolist(), batch.prices.tolist(), strict=True)
        return [PriceEvent(batch.markets[code], time, price) for code, time, price in columns]


def pulled(task: FetchTask) -> Pulled:
    """Run a task to its end; what came before it failed is kept, as the fetch keeps it."""
    outcome = Pulled()
    try:
        outcome.steps.extend(task.pull())
    except CloudError as error:
        outcome.error = error
    return outcome
