"""The figures of a run that has ended, as `--json` and messages have them."""

from typing import Any

from bidbrain.billing import usd
from pricing_data.units import HOUR
from spotctl.log.events import RunEnded
from spotctl.log.ledger.rows import Use
from spotctl.log.ledger.uses import use_spans
from spotctl.log.state import RunState


def final_figures(state: RunState, ended: RunEnded) -> dict[str, Any]:
    """The figures that `spotctl launch --json` prints, and that a message about the run has.

    Fields:
        run: id of the run
        outcome: `done`, `failed`, `stopped`, `no capacity`, `not in time`, `budget reached` or `not permitted`
        message: the same in words
        cost_usd: cost of the run; null if it could not be computed
        on_demand_usd: cost of the same work on on-demand machines
        replayed: whether the run was on the local market: then these amounts were replayed, and nothing was billed
        hours: duration of the run by the market's clock
        evictions: number of evictions
        busy: share of the machines' time spent on work that counts; null if no machine was rented
        -> agileml.iteration_log:last_line_of
        -> agileml.iteration_log:redone_fields
        -> agileml.iteration_log:share_fields
        model: file of the model
        checkpoint: place of the newest checkpoint, of a command or of a training that did not end
        checkpoint_clock: clock of that training's checkpoint
        outputs: where the outputs of a command are kept, by name
        outputs.*: place of this output
        work_left: share of the work that is left, if the budget ended the run
        to_finish_usd: estimated cost of that rest
        cluster: Ray cluster on which the training ran
        cluster -> spotctl.files.job.spec:JobSpec.cluster
    """
    facts = dict(ended.facts)
    spent, on_demand = facts.pop("spent", None), facts.pop("on_demand", None)
    return {
        "run": state.run,
        "outcome": ended.outcome,
        "message": ended.message,
        "cost_usd": None if spent is None else usd(spent),
        "on_demand_usd": None if on_demand is None else usd(on_demand),
        "replayed": state.is_replayed,
        "hours": (state.at - state.started) / HOUR,
        **facts,
        "evictions": state.evictions,
        "busy": busy(state),
    }


def without_run(job: str, outcome: str, message: str) -> dict[str, Any]:
    """The answer for a job that has no run.

    Fields:
        job: name of the job
        run: null
        outcome: `withdrawn` if the job was stopped while it waited for its turn; `error` if it could not run
        message: the same in words
    """
    return {"job": job, "run": None, "outcome": outcome, "message": message}


def busy(state: RunState) -> float | None:
    """The share of the machines' time that was useful work; work that was redone counts once."""
    whole = working = 0
    for held in state.machines.values():
        for begin, end, use in use_spans(state, held, state.at if held.ended is None else held.ended):
            whole += end - begin
            working += (end - begin) * (use is Use.WORKING)
    return working / whole if whole else None
