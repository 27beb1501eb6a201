"""The cost of the rest of a run: its decision object, played over the past from where the run is now."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from bidbrain.billing import End
from bidbrain.forecast.forecast import forecast
from bidbrain.forecast.values import ForecastJob, KnownPast
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR
from spotctl.planning.forecasting import deciders, forecast_job
from spotctl.planning.values import JobPlan

_DECISIONS = 600
"""Decisions to play: fewer than for a plan, because a run is played several times and only the median matters."""


@dataclass(frozen=True, slots=True)
class PlayedRest:
    """The rest of a run at a moment: `work` in microseconds times nu, infinite if the job ends by time; then `share` of
    its time is left. `histories` reach up to `now`."""

    plan: JobPlan
    now: int
    work: float
    share: float
    usd_left: float
    histories: Mapping[Market, PriceSeries]

    def with_enough_money(self) -> "PlayedRest":
        """This rest with a higher budget: raised by the share of the work that is left."""
        budget = self.plan.job.budget_usd
        return replace(self, usd_left=inf if budget is None else budget * self.share)

    def usd(self) -> float:
        """The expected dollars, as likely too high as too low.

        Machines that run already are not started again. Machines at the end are billed by the second, as in the cost
        so far: a play from here on does not know which hours the machines have begun.
        """
        job = self._job()
        played = forecast(job, KnownPast(self.now, self.histories, self.plan.built.market_history.hazards))
        return max(played.usd.median - job.overheads.startup / HOUR * played.usd_per_hour.median, 0.0)

    def _job(self) -> ForecastJob:
        plan, job = self.plan, forecast_job(self.plan)
        longest = job.longest
        if self.work == inf:
            longest = job.overheads.startup + round((job.longest - job.overheads.startup) * self.share)
        return replace(
            job,
            decider=deciders(plan, self.now),
            work=self.work,
            longest=longest,
            times=replace(job.times, order=0),
            at_end=End.HANDED_ON,
            budget_usd=None if job.budget_usd is None else self.usd_left,
            most_decisions=_DECISIONS,
        )
