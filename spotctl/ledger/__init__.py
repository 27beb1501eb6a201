"""The ledger: what runs paid, and for what, as rows computed from the event log and the price history alone.

`project` computes them from events, `read` finds the events and the prices. `spotctl.reports` adds them up.
"""

from spotctl.ledger.project import Ledger, on_demand, priced, project, rows_of
from spotctl.ledger.rows import NANO_SECONDS_PER_DOLLAR, ChargeKind, LedgerRow, Use, micro_dollars

__all__ = [
    "NANO_SECONDS_PER_DOLLAR",
    "ChargeKind",
    "Ledger",
    "LedgerRow",
    "Use",
    "micro_dollars",
    "on_demand",
    "priced",
    "project",
    "rows_of",
]
