"""`spotctl.plan` and `spotctl.launch`, next to the commands whose results they return."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest

import spotctl as python
from spotctl.files.yaml_file import read
from spotctl.home.errors import BadRequest
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import training

AT = "2026-01-20T12:00:00Z"


def test_a_plan_is_that_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = training(tmp_path)
    fields: Any = read(path).content
    plan = python.plan(fields, at=AT, hours=2)
    assert plan.json() == spotctl("plan", path, "--at", AT, "--hours", "2h", "--json").json
    monkeypatch.setenv("COLUMNS", "120")
    shown = spotctl("plan", path, "--at", AT, "--hours", "2h").out
    assert str(plan).splitlines() == [line.rstrip() for line in shown.rstrip().splitlines()]
    drawn = plan._repr_html_()
    assert f"${plan.cost_usd:.2f}" in html.unescape(drawn)
    assert drawn.startswith("<svg")
    table = html.unescape(re.sub("<[^>]*>", "", drawn.rpartition("</svg>")[2]))
    assert (plan.job in table, f"${plan.cost_usd:.2f}" in table) == (True, True)


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ({"name": "x"}, "job: "),
        (
            {"name": "x", "kind": "command", "hours": "banana"},
            "job: hours: 'banana' is not a duration",
        ),
        ({"name": object()}, "of type object; write it as in a job file"),
        (7, "job is of type int; pass the path of a job file, or a dict of its fields"),
        ("no-such-file.yaml", "no-such-file.yaml: cannot be read"),
    ],
)
# Also what is refused.
def test_errors_say_what_to_write(job: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(BadRequest, match=message) as caught:
        python.plan(job)
    assert "\n" not in str(caught.value)
