"""Billing: what a machine's life costs, what it will cost, and when leaving it is cheapest, rule by rule.

`bill` turns a life (start, end, who ended it) and a market's prices into rows that sum to what is paid, `rules` are the
providers' ways of doing so, `outlook` is what is expected of a life that goes on. Amounts are integers of
nano-dollar-seconds: nano-dollars per hour times billed seconds. `usd` rounds them, once, when they are shown.
"""

from bidbrain.billing.bill import Bill, Charge, End, ImpossibleLife, Life, Prices, usd
from bidbrain.billing.outlook import Outlook, SampledSurvival, Survival, expected_cost, expected_seconds
from bidbrain.billing.rules import (
    BILLING_RULES,
    BillingRule,
    Dues,
    FullMinutes,
    HourlyRefund,
    PerSecond,
    UnknownBillingRule,
    billing_rule,
    cost_so_far,
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
    "Outlook",
    "PerSecond",
    "Prices",
    "SampledSurvival",
    "Survival",
    "UnknownBillingRule",
    "billing_rule",
    "cost_so_far",
    "expected_cost",
    "expected_seconds",
    "rule_of_cloud",
    "usd",
]
