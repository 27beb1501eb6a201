"""The ledger: what runs paid, and for what, as rows that follow from the event log and the price history alone.

`project` makes them of events, `reading` finds the events and the prices. `spotctl.reports` adds them up.
"""

from spotctl.ledger.project import Ledger, on_demand, priced, project, rows_of
from spotctl.ledger.rows import NANO_SECONDS_PER_DOLLAR, Kind, Row, Use, micro_dollars

__all__ = [
    "NANO_SECONDS_PER_DOLLAR",
    "Kind",
    "Ledger",
    "Row",
    "Use",
    "micro_dollars",
    "on_demand",
    "priced",
    "project",
    "rows_of",
]
