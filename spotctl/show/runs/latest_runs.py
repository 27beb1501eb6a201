"""The views of the latest runs of all jobs. The log keeps those of runs that have ended."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from msgspec import json

from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log import store
from spotctl.log.events import RowsLost
from spotctl.log.outcomes import BrokenLog, LogFailed
from spotctl.log.schema import StoredRow
from spotctl.show.runs.run_view import RunView


@dataclass(frozen=True, slots=True)
class LatestRuns:
    """The latest run of each job, and why that may not be all: what is damaged, and what a repair has dropped that may
    be of any run."""

    runs: Sequence[RunView] = ()
    damage: tuple[str, ...] = ()
    lost: tuple[RowsLost, ...] = ()


def latest_views(settings: Settings, elsewhere: Collection[str] = ()) -> LatestRuns:
    """The latest run of each job; to those `elsewhere`, a runner on another computer attends."""
    paths = Paths(settings.home)
    if not store.exists(paths.log):
        return LatestRuns()
    try:
        with store.EventLog(paths.log) as log:
            log.check(wall_us())
            with log.snapshot():
                newest, lost = list(log.latest().values()), log.losses()
                ends = {run: end for run, end in log.ends().items() if run in newest}
                kept = log.final("final_views", ends)
                rows = {run: log.rows_of(run) for run in newest if run not in kept}
            made = _from_rows(rows, settings, elsewhere) if rows else {}
            final = [(ends[run], view) for run, (view, is_final) in made.items() if is_final and run in ends]
            if final:
                log.keep("final_views", [(end, (json.encode(view, enc_hook=str).decode(), "")) for end, view in final])
    except (BrokenLog, LogFailed) as error:
        from spotctl.log.statuses import read_log
        from spotctl.show.runs.reading import RunViews

        read, views = read_log(settings), RunViews(settings)
        damage = read.damage or (str(error),)
        return LatestRuns([views.listed(state, elsewhere) for state in read.latest], damage, read.lost)
    known = {
        run: json.decode(content, type=RunView, dec_hook=lambda kind, text: kind(text))
        for run, (content, _) in kept.items()
    }
    known |= {run: view for run, (view, _) in made.items()}
    return LatestRuns([known[run] for run in newest], (), lost)


def _from_rows(
    runs: Mapping[str, Sequence[StoredRow]], settings: Settings, elsewhere: Collection[str]
) -> dict[str, tuple[RunView, bool]]:
    """The views of runs with these rows, and whether they follow from the log alone."""
    # These imports take longer than to show runs that have ended.
    from spotctl.log.event_json import log_rows
    from spotctl.log.folding import fold
    from spotctl.log.ledger.project import is_settled
    from spotctl.show.runs.reading import RunViews

    made, views = dict[str, tuple[RunView, bool]](), RunViews(settings)
    for run, rows in runs.items():
        state = fold(log_rows(rows))
        is_final = state.ended is not None and ("spent" in state.ended.facts or is_settled(state))
        made[run] = views.listed(state, elsewhere), is_final
    return made
