"""A trial of a job that is launched on a cloud for the first time: proposed if it can show
anything.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spotctl.cli.script_trial import is_new_on_cloud
from spotctl.files.job.reader import load
from spotctl.home import config
from tests.spotctl.show.costs.made import NIGHT, MadeRun, write_log
from tests.spotctl.terminals import terminal

pytestmark = pytest.mark.usefixtures("few_windows")

CLOUD = (
    "name: first\nkind: command\nrun: python train.py\ncheckpoint: {path: "
    "s3://bucket/first/}\nbudget: 5 USD\n"
)


def test_the_first_launch_on_a_cloud_proposes_a_trial(tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    (tmp_path / "train.py").touch()
    job.write_text(f"{CLOUD}resources: {{clouds: [aws], types: [c6i.large]}}\n")
    settings = config.load({}, tmp_path / "home")
    assert is_new_on_cloud(settings, load(job))
    with terminal("launch", job) as window:
        window.wait_for(
            "A trial runs first in a copy of its folder, kills it twice and starts it again: for "
            "60 s at"
        )
        assert re.search(
            r"most, with \d+ GiB of memory and 20 GiB of disk", " ".join(window.screen.split())
        )
        window.wait_for("Try it on this computer?")
        window.type("n\n")
        assert window.exit_code() != 0, "no price of the cloud is stored"
    assert "rehearsing" not in window.screen
    for provider, is_new in (("local", True), ("aws", False)):
        made = MadeRun(f"first-{provider}", "first", NIGHT, provider=provider)
        made.begin(kind="command")
        home = tmp_path / provider
        write_log([made], home)
        assert is_new_on_cloud(config.load({}, home), load(job)) is is_new


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[aws], types: [c6i.large]", "[local]"),
        ("checkpoint: {path: s3://bucket/first/}\n", ""),
        ("budget:", "data: {corpus: s3://bucket/corpus/}\nbudget:"),
        ("budget:", "image: {container: docker.io/library/python:3.12}\nbudget:"),
    ],
    ids=["local", "no checkpoint", "data in a store", "a container"],
)
def test_a_job_that_a_trial_cannot_show_is_not_proposed(tmp_path: Path, old: str, new: str) -> None:
    job = tmp_path / "job.yaml"
    (tmp_path / "train.py").touch()
    job.write_text(f"{CLOUD}resources: {{clouds: [aws], types: [c6i.large]}}\n".replace(old, new))
    assert not is_new_on_cloud(config.load({}, tmp_path / "home"), load(job))
