"""`spotctl try --full` before anything is rented, and `spotctl try --bill`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spotctl.run.trial.record import PASSED, StepResult, TrialRecord, as_json
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.show.costs.bills.exports import WHOLE, Line, as_csv, made_run
from tests.spotctl.show.costs.made import write_log

RECORD = TrialRecord(
    "aws",
    "us-east-1",
    "ec2.amazonaws.com",
    "2026-06-05",
    {"spotctl": "1"},
    (StepResult("left", PASSED, "nothing"),),
    0.1,
)


@pytest.fixture
def trial(tmp_path: Path) -> Path:
    """A home in which a full trial has ended, whose run is in the log; returns the record."""
    write_log([made_run("aws")], tmp_path / "home")
    folder = tmp_path / "home" / "try"
    folder.mkdir()
    kept = {
        "record": as_json(RECORD),
        "file": "record.json",
        "runs": ["job-1"],
        "bare_run": "try-full-1a2b3c",
    }
    (folder / "full-aws.json").write_text(json.dumps(kept))
    return folder / "record.json"


def bill_of(bill: list[Line], folder: Path) -> tuple[int | str | None, dict[str, Any]]:
    (folder / "bill.csv").write_text(as_csv(bill))
    compared = spotctl("try", "aws", "--bill", folder / "bill.csv", "--json")
    return compared.code, compared.json["bill"]


def test_a_bill_is_compared_with_the_runs_of_the_trial_only(trial: Path, tmp_path: Path) -> None:
    tag = "resourceTags/user:spotctl-run"
    bare = {
        **WHOLE["aws"][0],
        "lineItem/ResourceId": "i-bare",
        "lineItem/UnblendedCost": "0.25",
        tag: "try-full-1a2b3c",
    }
    other = {
        **WHOLE["aws"][0],
        "lineItem/ResourceId": "i-other",
        "lineItem/UnblendedCost": "9.00",
        tag: "job-2",
    }
    code, bill = bill_of([*WHOLE["aws"], bare, other], tmp_path)
    assert (code, bill["agrees"], bill["machines"], bill["bare_usd"]) == (0, True, 3, 0.25)
    assert bill["bill_usd"] == pytest.approx(bill["ledger_usd"], rel=1e-6)
    assert json.loads(trial.read_text())["bill"] == bill


def test_a_bill_that_differs_is_an_error_and_part_of_the_record(
    trial: Path, tmp_path: Path
) -> None:
    changed = [{**line, "lineItem/UnblendedCost": "1.00"} for line in WHOLE["aws"]]
    code, bill = bill_of(changed, tmp_path)
    assert (code, bill["agrees"]) == (1, False)
    assert json.loads(trial.read_text())["bill"]["bill_usd"] > bill["ledger_usd"]


def test_without_a_trial_there_is_nothing_to_compare(tmp_path: Path, approved: Approved) -> None:
    (tmp_path / "bill.csv").write_text(as_csv(WHOLE["aws"]))
    refused = spotctl("try", "aws", "--bill", tmp_path / "bill.csv")
    approved(refused)


@pytest.mark.parametrize(
    "words",
    [
        ["--bucket", "s3://b"],
        ["--full", "--region", "a", "--region", "b"],
        ["--full", "--region", "us-east-1"],
        ["--full", "--type", "a.b", "--type", "a.c", "--type", "a.d"],
    ],
)
def test_bad_options_of_a_full_trial_are_refused(words: list[str], approved: Approved) -> None:
    refused = spotctl("try", "aws", *words)
    approved(refused)


@pytest.mark.parametrize("name", ["aws-try", "aws-try-role", "azure-try", "gcp-try"])
def test_the_second_policy_of_a_trial_is_printed(name: str) -> None:
    printed = spotctl("doctor", "--policy", name)
    assert printed.code == 0
    actions = json.dumps(printed.json)
    assert any(word in actions for word in ("fis:", "SendSpotInstanceInterruptions", "simulate"))
    assert "RunInstances" not in actions
