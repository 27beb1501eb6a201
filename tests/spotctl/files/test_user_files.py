"""Files that are not written over by accident."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.files.script.test_reading import job, public

pytestmark = [pytest.mark.usefixtures("folder"), pytest.mark.usefixtures("few_windows")]


def test_a_job_file_is_written_over_only_with_force(approved: Approved) -> None:
    public("out_of_core")
    Path("job.yaml").write_text("mine")
    refused = spotctl("init", "out_of_core.py")
    approved(refused)
    assert Path("job.yaml").read_text() == "mine"
    assert spotctl("init", "out_of_core.py", "--force").code == 0
    assert job().name == "out-of-core"
