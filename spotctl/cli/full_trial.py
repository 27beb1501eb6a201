"""`spotctl try CLOUD --full` and `--bill`: the checks of an account, and their comparison with its bill."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    from spotctl.cli.session import Session
    from spotctl.clouds.bill_lines import ProviderBill

_TOLERANCE = 0.005
"""The share by which amounts may differ, as for `spotctl report reconcile`."""


@dataclass(frozen=True, slots=True)
class TrialOptions:
    """The options of a full trial: where, on which types, with which bucket and identity, and only some steps."""

    regions: Sequence[str]
    types: Sequence[str]
    bucket: str
    identity: str
    steps: Sequence[str]


def try_fully(session: Session, cloud: str, options: TrialOptions, *, yes: bool, json_: bool) -> None:
    """Carries out the steps, prints a line for each as soon as it has ended, and keeps the record."""
    from contextlib import closing

    from spotctl.cli.launch import confirm
    from spotctl.run.trial.conduct import conduct, keep, open_kit, private_words
    from spotctl.run.trial.record import as_json, line

    kit = open_kit(
        cloud,
        options.regions,
        options.types,
        session.settings,
        session.library,
        options.bucket,
        options.identity,
    )
    names = " and ".join(dict.fromkeys(kind.name for kind in kit.kinds))
    session.remark(f"a full trial rents machines of {names} in {kit.region}, for at most ${kit.cap_usd:g}")
    if not (yes or confirm(session)):
        return
    with closing(kit.provider):
        record = conduct(kit, options.steps, lambda step: (session.remark if json_ else session.say)(line(step)))
    path = keep(kit, record)
    if json_:
        session.answer_json(as_json(record, private_words(kit)))
    session.remark(f"record without names of your account, to pass on: {path}")
    raise typer.Exit(0 if record.passed else 1)


def compare_bill(session: Session, cloud: str, bill: Path, *, json_: bool) -> None:
    """Compares the bill of the last full trial with the ledger, and adds the result to the trial's record."""
    from spotctl.log.ledger_reader import read
    from spotctl.run.trial.conduct import kept_file
    from spotctl.run.trial.record import as_json, from_json
    from spotctl.show.costs.bills.read import read_bill
    from spotctl.show.costs.bills.reconcile import reconcile
    from spotctl.show.costs.figures import usd

    kept_path = kept_file(session.settings, cloud)
    if not kept_path.is_file():
        raise BadRequest(f"no full trial of {cloud} was carried out in this home: spotctl try {cloud} --full")
    kept: dict[str, Any] = json.loads(kept_path.read_text())
    lines = read_bill(bill, cloud)
    rows = [row for run in read(session.settings) if run.state.run in kept["runs"] for row in run.ledger.rows]
    agreement = reconcile(rows, _of_runs(lines, {*kept["runs"]}), _TOLERANCE)
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
        verdict = "agree" if agreement.agrees else "differ (spotctl report reconcile lists the differences)"
        session.say(
            f"bill ${result['bill_usd']:.4f} and ledger ${result['ledger_usd']:.4f} of {agreement.machines} machines"
            f" {verdict}; ${bare:.4f} for machines without a job"
        )
    raise typer.Exit(0 if agreement.agrees else 1)


def _of_runs(bill: ProviderBill, runs: Collection[str]) -> ProviderBill:
    """The lines of a bill that carry the tag of one of these runs; all, if the export has no tags."""
    if not bill.has_tags:
        return bill
    return replace(bill, lines=tuple(line for line in bill.lines if line.run in runs))
