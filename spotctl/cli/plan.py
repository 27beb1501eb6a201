"""`spotctl plan`: which machines would be rented for jobs, and why."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotctl.cli.session import JsonOption, Session

if TYPE_CHECKING:
    from spotctl.clouds.doctor import Finding


def plan(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(help="Job files. Several files are planned together.", show_default=False),
    ],
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Also show eviction intervals, the parts of the cost, rejected markets, the price "
            "of finishing sooner,"
            " and a training as a script and with and without a reliable machine.",
        ),
    ] = False,
    at: Annotated[
        str,
        typer.Option(
            help="Plan for this point in the price history: 2026-01-20T12:00:00Z.",
            show_default="now",
        ),
    ] = "",
    hours: Annotated[
        str,
        typer.Option(
            help="Hours of work to assume: 8h, or 8h on c6i.2xlarge, as `hours:` in the file."
        ),
    ] = "",
    plot: Annotated[
        Path | None,
        typer.Option(help="Also plot cost and time against on demand, as .png or .svg."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Also ask the clouds, without changing anything, whether the first orders would "
            "succeed.",
        ),
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Show which machines would be rented and why. Rents nothing, and works offline from stored
    prices.

    With --check, images, subnets, the way in for ssh, identities, quotas and the like are looked
    up, as before a launch, and EC2 checks the orders in dry runs.

    A Gavel policy picks the machine types that suit the job's objective, deadline and budget; the
    job's strategy picks markets, bids and machine counts. Plans use the newest stored prices.

    Exit codes: 3 if the job cannot finish in time, 4 if it exceeds its budget; with --check, 5 if
    credentials or permissions are missing, 1 if another check fails.

    Example: spotctl plan job.yaml --explain
    """
    from spotctl.files.job.reader import load

    session: Session = context.obj
    specs = [load(file, home=session.settings.home) for file in files]
    from spotctl.cli.progress import waiting

    what = f"planning {len(specs)} jobs" if len(specs) > 1 else "planning"
    with waiting(session, what):
        # Imported here, so that a refused file costs none of it.
        from spotctl.cli.doctor_checks import FINDINGS, report
        from spotctl.clouds.doctor import exit_code
        from spotctl.run.start.earlier_runs import continued
        from spotctl.run.start.launch_plans import explained, stored_plans
        from spotctl.run.start.live_markets import on_one_market
        from spotctl.show.columns import as_json
        from spotctl.show.plans import plan_answers, plan_tables
        from spotctl.show.terminal import freshness_remarks

    if len(specs) == 1 and specs[0].on_ray:
        session.answer(json_, plan_answers.answer(specs[0]), plan_answers.plan_text(specs[0]))
        return

    if plot is not None:
        from spotctl.show.plans import plots as plan_plots
        from spotctl.show.plots import check_picture

        check_picture(plot)

    specs, shared = on_one_market(continued(specs, session.settings, session.remark, asks=check))
    with waiting(session, what):
        planned = stored_plans(specs, session.settings, at, hours)
    if explain:
        with waiting(session, what):
            planned = explained(planned, session.settings, at, hours)

    if plot is not None:
        plan_plots.draw(planned.plans, plot)
        session.remark(f"drew {plot}")

    checks: list[Sequence[Finding]] = [()] * len(planned.plans)
    if check:
        # It reads what launches of every kind need, which takes longer than many a plan.
        from spotctl.run.start.admission import checked

        with waiting(session, "asking the clouds"):
            checks = [checked(plan, session.settings)[0] for plan in planned.plans]

    if json_:
        answers = plan_answers.answers(planned)
        if check:
            shown = [as_json(FINDINGS, findings)["findings"] for findings in checks]
            answers = [
                {**answer, "checks": findings}
                for answer, findings in zip(answers, shown, strict=True)
            ]
        session.answer_json(answers[0] if len(answers) == 1 else answers)
        raise typer.Exit(exit_code(chain.from_iterable(checks)))

    # Where all stored prices are old, another remark says so. What a plan rests on comes first.
    states = [prices.state(planned.at) for prices in planned.clouds]
    named = [
        prices
        for prices, state in zip(planned.clouds, states, strict=True)
        if state == "missing" or "fresh" in states
    ]
    session.remark(*shared, *planned.remarks, *freshness_remarks(named, planned.at))

    for plan in planned.plans:
        width = session.out.width
        session.out.print(plan_tables.plan_view(plan, width, explain=explain, planned=planned))

    session.remark(*plan_answers.account_remarks(planned.accounts))
    for findings in checks if check else ():
        session.out.print("", report(findings))
    raise typer.Exit(exit_code(chain.from_iterable(checks)))
