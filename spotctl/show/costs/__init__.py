"""Reports on what runs cost, and the comparison with providers' bills."""

from spotctl.show.costs.cost_summary import CostSummary, cost_summary

__all__ = ["CostSummary", "cost_summary"]
