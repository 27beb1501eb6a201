"""docs/proof.md has the records of full trials, and these name no account."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spotctl.run.trial.record import as_json, from_json
from tests import proof


def test_the_page_has_a_row_for_each_record_and_says_if_none_is_of_a_real_account() -> None:
    page = proof.PAGE.read_text()
    assert page == proof.written(page), "run python -m tests.proof"
    assert ("no record of a real account" in page) is not any(
        record["real"] for record in proof.records()
    )


@pytest.mark.parametrize("path", sorted(proof.RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_a_record_can_be_read_and_names_no_account(path: Path) -> None:
    record = json.loads(path.read_text())
    assert as_json(from_json(record)) == record


def test_a_record_of_a_real_account_replaces_the_sentence() -> None:
    steps = [
        {
            "name": "lease",
            "outcome": "failed",
            "detail": "it still runs",
            "seconds": 1.0,
            "figures": {},
        }
    ]
    record = {
        "cloud": "aws",
        "date": "2026-12-01",
        "versions": {"spotctl": "1.0", "boto3": "1.40"},
        "real": True,
        "most_usd": 0.25,
        "steps": steps,
        "bill": {"agrees": True},
    }
    section = proof.section([record])
    assert "no record" not in section
    row = (
        "| aws | 2026-12-01 | spotctl 1.0, boto3 1.40 | 0 of 1 | lease failed | - | $0.250 | "
        "agrees |"
    )
    assert section.splitlines()[-1] == row
