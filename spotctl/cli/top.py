"""`spotctl top`: live view of a run."""

import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from spotctl.cli.options import OptionalJobArgument
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest


def top(
    context: typer.Context,
    job: OptionalJobArgument = "",
    once: Annotated[bool, typer.Option("--once", help="Print once and exit.")] = False,
    json_: JsonOption = False,
) -> None:
    """Show a run live: machines over time, stage, prices, spend against budget and on-demand, loss, events.

    Quitting does not affect the run. Without JOB, shows all active runs, or the latest run. Needs the extra `tui`,
    except with --once. Where machines have nvidia-smi, each market shows average GPU load and memory use; a
    change appears within two minutes, a change of less than 10 points may not.

    Example: spotctl top nightly-recsys
    """
    from spotctl.cli import elsewhere
    from spotctl.show.top import snapshot, views
    from spotctl.show.top.watcher import Watcher

    session: Session = context.obj
    options = [*(["--once"] if once else []), *(["--json"] if json_ else [])]
    if job:
        elsewhere.pass_on(session, job, "top", job, *options, terminal=not options)
    live = not (once or json_)
    if live:
        _require_live()
    with ExitStack() as stack:
        attended = elsewhere.refresh(session, job)
        jobs = [job] if job else _jobs(session, all_=live)
        sources = [stack.enter_context(Watcher(name, session.settings, attended)).snapshot for name in jobs]
        first = sources[0]()
        if json_:
            session.answer_json(snapshot.answer(first))
        elif once:
            session.out.print(views.once(first, session.out.width))
        else:
            from spotctl.show.top.app import Top

            Top(sources).run()


def _require_live() -> None:
    try:
        import textual  # noqa: F401 - checked before the run is read
    except ImportError:
        raise BadRequest(
            "the live view needs an extra: pip install 'spotctl[tui]' (spotctl status needs none)"
        ) from None
    if not sys.stdout.isatty():
        raise BadRequest("the live view needs a terminal: use spotctl status for a snapshot")


def _jobs(session: Session, *, all_: bool) -> list[str]:
    """Active jobs, or the last one launched."""
    from spotctl.home.paths import Paths
    from spotctl.log.salvage import no_runs
    from spotctl.log.statuses import job_names, unfinished_jobs

    names = job_names(session.settings)
    if not names:
        raise BadRequest(no_runs(Paths(session.settings.home)))
    going = unfinished_jobs(session.settings) or names[-1:]
    return going if all_ else going[-1:]
