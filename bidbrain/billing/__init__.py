"""Billing rules: what a machine's life cost, and what it is expected to cost.

`bill` turns a life (start, end, how it ended) and a market's prices into rows that sum to the amount paid, `rules`
implements the providers' rules, `outlook` gives the expected cost of a life that continues. Amounts are integers of
nano-dollar-seconds: nano-dollars per hour times billed seconds. `usd` rounds them once, for display.
"""

from bidbrain.billing.bill import Bill, Charge, End, ImpossibleLife, Life, Prices, usd
from bidbrain.billing.outlook import SampledSurvival, Survival, expected_seconds
from bidbrain.billing.rules import (
    BILLING_RULES,
    BillingRule,
    Dues,
    FullMinutes,
    HourlyRefund,
    PerSecond,
    UnknownBillingRule,
    billing_rule,
    highest_price,
    rule_of_cloud,
)

__all__ = [
    "BILLING_RULES",
    "Bill",
    "BillingRule",
    "Charge",
    "Dues",
    "End",
    "FullMinutes",
    "HourlyRefund",
    "ImpossibleLife",
    "Life",
    "PerSecond",
    "Prices",
    "SampledSurvival",
    "Survival",
    "UnknownBillingRule",
    "billing_rule",
    "expected_seconds",
    "highest_price",
    "rule_of_cloud",
    "usd",
]
