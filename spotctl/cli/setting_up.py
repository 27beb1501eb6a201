"""`spotctl setup`: what an account of a cloud needs once, made and removed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spotctl.cli.session import JsonOption, Session
from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    from spotctl.clouds.setup import SetupRecord, SetupStep


def setup(
    context: typer.Context,
    cloud: Annotated[str, typer.Argument(help="The cloud, such as aws.", show_default=False)],
    region: Annotated[
        str, typer.Option(help="Where the bucket is, and quotas are asked for.")
    ] = "",
    type_: Annotated[
        list[str] | None,
        typer.Option(
            "--type", help="A machine type for which quotas of AWS are asked for. Repeatable."
        ),
    ] = None,
    undo: Annotated[
        bool, typer.Option("--undo", help="Remove what this command has made, and nothing else.")
    ] = False,
    print_: Annotated[
        bool, typer.Option("--print", help="Print the cloud's own commands, for an administrator.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    json_: JsonOption = False,
) -> None:
    """Set up an account: rights for launches, the machines' identity, a bucket, quotas on AWS, and ssh
    from this computer.

    Shows what is there and what it would make, and asks. It can be repeated: it makes only what is
    missing. If something fails, it removes what it had made. Costs nothing by itself.

    Exit codes: 0 all is there, 2 it was not confirmed, 5 credentials or a permission are missing.

    Example: spotctl setup aws --region us-east-1 --type g6.xlarge

    Example: spotctl setup aws --print
    """
    from pricing_data.known_clouds import has_part, part_of
    from spotctl.clouds.setup import SetupRecord, make_all, missing, undo_all
    from spotctl.home.cloud import cloud_of, rented_clouds
    from spotctl.home.paths import Paths

    session: Session = context.obj
    if cloud not in rented_clouds():
        raise BadRequest(f"cloud {cloud!r} is not one of {', '.join(rented_clouds())}")
    if not has_part(cloud, "setup"):
        own = cloud_of(cloud).account
        how = "see docs" if own is None else f"{own.setup}; {own.guide}"
        raise BadRequest(f"{cloud} is set up by hand: {how}")

    opened = part_of(cloud, "setup").opened
    with opened(session.settings, region, type_ or ()) as (account, of_cloud, facts):
        record = SetupRecord(Paths(session.settings.home), cloud, account)
        if print_:
            sys.stdout.writelines(f"{line}\n" for step in of_cloud for line in step.commands)
            return
        steps = [*of_cloud, *_of_this_computer(session, cloud, record, undo=undo)]
        if undo:
            left = undo_all(steps, record, session.remark)
            for error in left:
                session.remark(f"left: {error}")
            if json_:
                session.answer_json(_answer(account, steps, record, facts))
            raise typer.Exit(1 if left else 0)

        lacking = missing(steps, record)
        old = {step.name: step.is_old for step in lacking}
        states = {None: "is there  ", False: "would make", True: "is older  "}
        for step in steps:
            session.remark(f"{states[old.get(step.name)]}  {step.what}")
        if lacking and not (yes or _confirmed()):
            raise typer.Exit(2)
        make_all(lacking, record, session.remark)

    if json_:
        session.answer_json(_answer(account, steps, record, facts))
        return
    session.remark(f"{cloud}: all is there; check it with: spotctl doctor {cloud}")
    session.say(*(f"{key}: {_flow(value)}" for key, value in facts.items()))


def _of_this_computer(
    session: Session, cloud: str, record: SetupRecord, *, undo: bool
) -> Sequence[SetupStep]:
    """The step that admits this computer to machines; none where the settings admit somebody."""
    from spotctl.clouds.setup import public_address, setting_step

    own = next((name for name in record.made() if name.startswith("ssh_from ")), "")
    table = session.settings.tables.get(cloud)
    networks = ("ssh_from", "security_groups", "security_group", "network_tags")
    if not own and (undo or any(getattr(table, name, None) for name in networks)):
        return ()
    address = own.removeprefix("ssh_from ") or public_address(session.settings)
    why = f"machines admit ssh from {address}"
    return [setting_step(session.settings, cloud, "ssh_from", (address,), why)]


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        raise BadRequest("no terminal to ask for confirmation on: pass --yes, or --print")
    return typer.confirm("Make this?")


def _flow(value: Mapping[str, str]) -> str:
    pairs = ", ".join(f"{name}: {text}" for name, text in value.items())
    return f"{{{pairs}}}"


def _answer(
    account: str, steps: Sequence[SetupStep], record: SetupRecord, facts: Mapping[str, Any]
) -> dict[str, Any]:
    from spotctl.show.columns import as_json
    from spotctl.show.runs.run_answers import SETUP

    made = record.made()
    rows = [{"what": step.what, "made_here": step.name in made} for step in steps]
    return as_json(SETUP, {"account": account, "steps": rows, "job": facts})
