"""`spotctl try`: a first launch on a cloud, and proof that nothing of it is left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotctl.cli.options import RegionOption
from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    from spotctl.run.trial.record import Kit

_TOLERANCE = 0.005
"""The share by which amounts may differ, as for `spotctl report reconcile`."""


def try_(
    context: typer.Context,
    cloud: Annotated[
        str, typer.Argument(help="The cloud, such as aws, gcp or azure.", show_default=False)
    ],
    region: RegionOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    share: Annotated[
        bool,
        typer.Option(
            "--share", help="Check permissions, a machine and an eviction, and write a file for us."
        ),
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Check everything that launches need, step by step.")
    ] = False,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", help="With --full: a kind of machine to rent. At most twice."),
    ] = None,
    bucket: Annotated[
        str, typer.Option(help="With --full: where checkpoints are kept, such as s3://BUCKET/try.")
    ] = "",
    identity: Annotated[
        str, typer.Option(help="With --full: the machines' identity, as in a job file.")
    ] = "",
    step: Annotated[
        list[str] | None, typer.Option(help="With --full: only this step. Repeatable.")
    ] = None,
    bill: Annotated[
        Path | None,
        typer.Option(help="Compare the bill of the last full trial, which lists it a day later."),
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Run one command on a cloud's smallest machine, for a dollar at most, and check that nothing
    is left.

    Gives up if the machine is not running after 10 minutes. Needs credentials (spotctl doctor) and
    stored prices (spotctl prices fetch). Exit codes are those of launch, and 1 if the cloud still
    lists something of the run or does not answer.

    With --share, three steps for 20 cents at most: permissions and orders that are only checked; a
    machine until its agent answers; an eviction by the cloud's own simulator. They end with one
    file without names of your account, which helps us if you send it.

    With --full, each step is a line that passed, failed or was skipped: the account, an order of
    each family of types that is only checked, two machines and how long they take to boot, a
    repeated order, a lease that runs out, a killed launcher, an eviction by the cloud's own
    simulator and a checkpoint, a training, a runner that moves, and what is left. It takes about 15
    minutes, needs the permissions of `spotctl doctor --policy aws-try`, and writes a record without
    names of your account. Exit code 1 means that a step failed.

    Example: spotctl try aws --region us-east-1 --yes
    """
    from pricing_data.units import MINUTE
    from spotctl.cli.launch import confirm
    from spotctl.cli.runs.live_runs import EXIT_CODES, live_view
    from spotctl.home.cloud import rented_clouds
    from spotctl.log.ledger.same_work import final_figures
    from spotctl.run.start import runs
    from spotctl.run.start.admission import check_launchable
    from spotctl.run.start.launch_plans import plans_to_launch
    from spotctl.run.trial import conduct
    from spotctl.run.trial.conduct import open_kit
    from spotctl.run.turn.live_strategy import expectation
    from spotctl.show.columns import as_json
    from spotctl.show.plans import plan_tables
    from spotctl.show.runs import lines as run_lines, run_answers

    session: Session = context.obj
    if cloud not in rented_clouds():
        raise BadRequest(f"cloud {cloud!r} is not one of {', '.join(rented_clouds())}")

    if bill is not None:
        _compare_bill(session, cloud, bill, json_=json_)
    if full or share:
        kit = open_kit(
            cloud, region or (), type_ or (), session.settings, session.library, bucket, identity
        )
        if not full:
            kit = replace(kit, kinds=kit.kinds[:1], cap_usd=conduct.SHARED_USD)
        _try_fully(session, kit, step or (() if full else conduct.SHARED), yes=yes, json_=json_)
        return
    if type_ or bucket or identity or step:
        raise BadRequest("--type, --bucket, --identity and --step belong to --full or --share")

    known = session.library
    spec = conduct.trial_job(cloud, region or (), known, session.settings.home)
    check_launchable(spec)
    (plan,) = plans_to_launch((spec,), session.settings).plans
    if not json_:
        session.out.print(plan_tables.plan_view(plan, session.out.width, explain=False))
    if not (yes or confirm(session)):
        return

    minutes = conduct.GIVE_UP_AFTER // MINUTE
    session.remark(
        f"waiting for a {spec.resources.types[0]}; giving up if it is not running after {minutes} "
        "minutes"
    )
    patience = conduct.TrialPatience(spec, session.settings, session.remark)

    with live_view(session, publish=patience.look) as callbacks:
        state, ended = runs.launch(
            spec, session.settings, callbacks, fresh=True, expected=expectation(plan)
        )

    left = conduct.left_in_cloud(spec, state.run, session.settings)
    if json_:
        session.answer_json(
            {**final_figures(state, ended), **as_json(run_answers.LEFT, {"left": left})}
        )
    else:
        session.out.print(run_lines.summary(state, ended))
        session.remark(
            *(f"left: {resource.kind} {resource.id} (spotctl gc removes it)" for resource in left)
        )
        if not left:
            session.out.print(
                f"nothing is left: {cloud} lists no machine, disk, address, rule or group of "
                f"{state.run}"
            )

    raise typer.Exit(1 if left else EXIT_CODES[ended.outcome])


def _try_fully(session: Session, kit: Kit, steps: Sequence[str], *, yes: bool, json_: bool) -> None:
    """Carries out the steps, prints a line for each as soon as it has ended, and keeps the
    record."""
    from contextlib import closing

    from spotctl.cli.launch import confirm
    from spotctl.run.trial.conduct import conduct, keep, private_words
    from spotctl.run.trial.record import as_json, line

    names = " and ".join(dict.fromkeys(kind.name for kind in kit.kinds))
    session.remark(
        f"this trial rents machines of {names} in {kit.region}, for at most ${kit.cap_usd:g}"
    )
    if not (yes or confirm(session)):
        return

    with closing(kit.provider):
        record = conduct(
            kit, steps, lambda step: (session.remark if json_ else session.say)(line(step))
        )

    path = keep(kit, record)
    if json_:
        session.answer_json(as_json(record, private_words(kit)))
    session.remark(f"record without names of your account, to pass on (docs/proof.md): {path}")
    raise typer.Exit(0 if record.passed else 1)


def _compare_bill(session: Session, cloud: str, bill: Path, *, json_: bool) -> None:
    """Compares the bill of the last full trial with the ledger, and adds the result to the trial's
    record.
    """
    from spotctl.log.ledger.rows import usd
    from spotctl.log.ledger_reader import read
    from spotctl.run.trial.conduct import kept_file
    from spotctl.run.trial.record import as_json, from_json
    from spotctl.show.costs.bills.read import read_bill
    from spotctl.show.costs.bills.reconcile import reconcile

    kept_path = kept_file(session.settings, cloud)
    if not kept_path.is_file():
        raise BadRequest(
            f"no full trial of {cloud} was carried out in this home: spotctl try {cloud} --full"
        )

    kept: dict[str, Any] = json.loads(kept_path.read_text())
    lines = read_bill(bill, cloud)
    rows = [
        row
        for run in read(session.settings)
        if run.state.run in kept["runs"]
        for row in run.ledger.rows
    ]

    if lines.has_tags:
        own = tuple(line for line in lines.lines if line.run in kept["runs"])
        agreement = reconcile(rows, replace(lines, lines=own), _TOLERANCE)
    else:
        agreement = reconcile(rows, lines, _TOLERANCE)

    bare = usd(sum(line.nanos for line in lines.lines if line.run == kept["bare_run"]))
    result = {
        "agrees": agreement.agrees,
        "machines": agreement.machines,
        "ledger_usd": usd(agreement.ledger),
        "bill_usd": usd(agreement.bill),
        "bare_usd": bare,
    }

    record = replace(from_json(kept["record"]), bill=result)
    kept["record"] = as_json(record)
    (kept_path.parent / kept["file"]).write_text(json.dumps(kept["record"], indent=2) + "\n")
    kept_path.write_text(json.dumps(kept, indent=2) + "\n")

    if json_:
        session.answer_json(kept["record"])
    else:
        verdict = "differ (spotctl report reconcile lists the differences)"
        if agreement.agrees:
            verdict = "agree"
        session.say(
            f"bill ${result['bill_usd']:.4f} and ledger ${result['ledger_usd']:.4f} of "
            f"{agreement.machines} machines {verdict}; ${bare:.4f} for machines without a job"
        )

    raise typer.Exit(0 if agreement.agrees else 1)
