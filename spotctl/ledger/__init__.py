"""The ledger: what runs paid, and for what, as rows computed from the event log and the price history alone.

`project` computes them from events, `read` finds the events and the prices. `spotctl.reports` adds them up.
"""

from spotctl.ledger.project import Ledger, priced, project, rows_of
from spotctl.ledger.rows import NANO_SECONDS_PER_DOLLAR, ChargeKind, LedgerRow, Use, micro_dollars
from spotctl.ledger.same_work import SameWork, same_work

__all__ = [
    "NANO_SECONDS_PER_DOLLAR",
    "ChargeKind",
    "Ledger",
    "LedgerRow",
    "SameWork",
    "Use",
    "micro_dollars",
    "priced",
    "project",
    "rows_of",
    "same_work",
]
