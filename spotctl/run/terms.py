"""What a run's strategy and its billing are made of: the plan, terms, tariffs, and a training job for the engine."""

from __future__ import annotations

from agileml.apps.registry import TrainerSource
from agileml.job import Job
from agileml.roles.node import JobSettings
from agileml.stopping import Convergence, Stopping
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, SECOND
from spotctl.files.job.spec import JobSpec, Training
from spotctl.machines.base import CloudProvider
from spotctl.planning.regimes import billing_of
from spotctl.planning.values import JobPlan
from spotctl.run.reconcile import Terms
from spotctl.runlog.budget import Tariff
from spotctl.runlog.events import Planned

CHECKPOINT_CLOCKS = 10
HEARTBEAT_SECONDS = 5.0
"""Machines share this computer's processors, and start up while others work."""


def terms_of(found: JobPlan) -> Terms:
    """What the strategy of a plan is given."""
    constraints = found.constraints
    return Terms(constraints.offers, constraints.baseline, constraints.most_nu, found.work_left, constraints.reliable)


def expectation(found: JobPlan) -> Planned:
    """What a plan expects, for the log: what comes is laid beside it."""
    whole, (low, high) = found.whole, found.usd_range
    return Planned(whole.usd, low, high, whole.hours, found.on_demand.usd, found.work.assumed)


def tariff_of(provider: CloudProvider, started: int) -> Tariff:
    """Prices as the provider tells them, from the run's beginning on."""
    since = started // HOUR * HOUR

    def prices(market: Market, now: int) -> PriceSeries:
        return provider.prices(market, since, now)

    return Tariff(lambda market: billing_of(market.cloud), prices)


def _app_of(spec: JobSpec, program: Training) -> str:
    """A file is named from the job's folder, wherever the job is launched."""
    return str(spec.workdir / program.app) if program.app.endswith(".py") else program.app


def training_job(spec: JobSpec, program: Training) -> Job:
    """The job as the engine is given it: it begins with the reliable machines, and takes in whoever comes."""
    stop = program.stop
    # On the local market a job's times are the market's, as its prices and its deadline are.
    second = SECOND * (spec.local.speed if spec.is_local else 1.0)
    return Job(
        TrainerSource(_app_of(spec, program), program.args),
        spec.resources.reliable.machines,
        0,
        Stopping(
            stop.clocks,
            None if stop.span is None else stop.span / second,
            stop.loss,
            None if stop.converged is None else Convergence(stop.converged),
        ),
        JobSettings(deterministic=True),
        heartbeat_timeout=HEARTBEAT_SECONDS,
        checkpoint_every=CHECKPOINT_CLOCKS,
    )
