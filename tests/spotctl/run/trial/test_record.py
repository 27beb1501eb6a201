"""The record of a full trial: it can be passed on."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spotctl.run.trial.record import (
    FAILED,
    PASSED,
    StepResult,
    TrialRecord,
    as_json,
    from_json,
    line,
    redacted,
)

RECORD = TrialRecord(
    cloud="aws",
    region="us-east-1",
    endpoint="ec2.us-east-1.amazonaws.com",
    date="2026-11-24",
    versions={"spotctl": "1.0", "python": "3.12.3"},
    steps=(
        StepResult(
            "account", PASSED, "account 123456789012 as arn:aws:iam::123456789012:user/ada", 1.23
        ),
        StepResult(
            "machines",
            PASSED,
            "c6a.large, spot: agent 41 s",
            41.26,
            {"agent_seconds": 41.3, "type": "c6a.large"},
        ),
    ),
    most_usd=0.0123456,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("account 123456789012 is blocked", "account <ACCOUNT> is blocked"),
        ("as arn:aws:sts::123456789012:assumed-role/x/ada; fine", "as <ARN>; fine"),
        ("machine i-0abc12345678 and sg-0abc12345678", "machine <ID> and <ID>"),
        ("6f1c3c9e-8a4b-4b6e-9d63-0a1b2c3d4e5f is gone", "<UUID> is gone"),
        ("/subscriptions/s/resourceGroups/g: no", "<RESOURCE> no"),
        ("projects/x and /projects/tide-pool-7/zones/a", "projects/x and <RESOURCE>"),
        ("from 203.0.113.7/32 and 10.0.0.1", "from <ADDRESS> and <ADDRESS>"),
        ("runner@tide-pool-7.iam.gserviceaccount.com", "<MAIL>"),
        ("s3://company/models/x: denied", "<BUCKET> denied"),
        (
            "c6a.large took 41 s in us-east-1a, Standard_D4s_v5 52 s",
            "c6a.large took 41 s in us-east-1a, Standard_D4s_v5 52 s",
        ),
    ],
)
def test_what_clouds_say_of_an_account_is_taken_out(text: str, shown: str) -> None:
    assert redacted(text) == shown


def test_own_names_are_taken_out_as_whole_words() -> None:
    assert (
        redacted("ada uses ada-lab, not adam", ["ada", "ada-lab"])
        == "<PRIVATE> uses <PRIVATE>, not adam"
    )
    assert redacted("spotctl as root", ["spotctl", "root"]) == "spotctl as root"


def test_a_record_is_read_as_it_was_written_apart_from_private_words() -> None:
    written = json.loads(json.dumps(as_json(RECORD)))
    assert written["steps"][0]["detail"] == "account <ACCOUNT> as <ARN>"
    assert as_json(from_json(written)) == written
    assert (written["real"], written["passed"], written["bill"]) == (True, True, None)
    assert "123456789012" not in json.dumps(written)


@pytest.mark.parametrize("endpoint", ["127.0.0.1", "localhost", "::1", "test-server"])
def test_a_record_of_a_server_of_tests_says_so_and_stays_so(endpoint: str) -> None:
    written = as_json(replace(RECORD, endpoint=endpoint))
    assert (written["real"], written["endpoint"]) == (False, "a server of tests")
    assert as_json(from_json(written))["real"] is False


def test_a_record_with_a_step_that_failed_has_not_passed() -> None:
    failed = replace(RECORD, steps=(*RECORD.steps, StepResult("lease", FAILED, "it still runs")))
    assert not failed.passed
    assert line(failed.steps[-1]) == "failed   lease        it still runs"
