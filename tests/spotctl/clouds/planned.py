"""A plan of a small job, whose first orders are checked in the account."""

from __future__ import annotations

from pathlib import Path

from tests.spotctl.command_line import Ended, spotctl

_JOB = """name: small
kind: command
run: "true"
resources: {{clouds: [{cloud}], regions: [{region}], types: [{type}]}}
hours: 1h
"""


def plan(folder: Path, cloud: str, region: str, type_: str) -> Ended:
    """What `spotctl plan --check` says, with the prices of one market."""
    fetched = spotctl("prices", "fetch", "--cloud", cloud, "--region", region, "--type", type_)
    assert fetched.code == 0, fetched.err
    (folder / "job.yaml").write_text(_JOB.format(cloud=cloud, region=region, type=type_))
    return spotctl("plan", folder / "job.yaml", "--check")
