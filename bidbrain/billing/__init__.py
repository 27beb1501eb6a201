"""Billing rules: what a machine's life cost, and what it is expected to cost.

`bill` turns a life (start, end, how it ended) and a market's prices into rows that sum to the
amount paid, `rules` implements the providers' rules, `outlook` gives the expected cost of a life
that continues. Amounts are integers of nano-dollar-seconds: nano-dollars per hour times billed
seconds. `usd` rounds them once, for display.
"""

from bidbrain.billing.bill import Bill, Charge, End, ImpossibleLife, Life, Prices
from bidbrain.billing.rules import (
    BillingRule,
    CloudTerms,
    Dues,
    FullMinutes,
    HourlyRefund,
    PerSecond,
    SampledSurvival,
    Survival,
    UnknownBillingRule,
    billing_rule,
    billing_rules,
    expected_seconds,
    fixed_price,
    highest_price,
    rule_of_cloud,
    terms_of,
)
from pricing_data.units import usd

__all__ = [
    "Bill",
    "BillingRule",
    "Charge",
    "CloudTerms",
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
    "billing_rules",
    "expected_seconds",
    "fixed_price",
    "highest_price",
    "rule_of_cloud",
    "terms_of",
    "usd",
]
