"""Processes of machines whose folders are gone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from spotctl.agent.container.processes import MARK
from spotctl.clouds.local.processes import TAGS_VARIABLE
from spotctl.clouds.local.provider import LocalProvider
from tests.spotctl.clouds.local.test_provider import SLEEPER, order
from tests.waiting import eventually


def test_a_process_whose_folder_is_gone_is_found_by_its_tags_and_removed(
    slow: LocalProvider, root: Path
) -> None:
    lost = root / "machines" / "0123456789abcdef" / "0"
    tags = {MARK: str(lost), TAGS_VARIABLE: json.dumps({"run": "a", "installation": "ours"})}
    stray = subprocess.Popen(["sleep", "1000"], env={**os.environ, **tags})
    elsewhere = subprocess.Popen(
        ["sleep", "1000"], env={**os.environ, MARK: str(root.parent / "other" / "x" / "0")}
    )
    try:
        slow.create(order("t", 1, SLEEPER))
        eventually(lambda: len(slow.resources({})) == 2)
        machine, found = slow.resources({"run": "a"})
        assert machine.kind == "machine"
        assert (found.kind, found.id, found.detail) == ("process", str(stray.pid), str(lost))
        assert slow.resources({"installation": "ours"}) == (found,)
        assert slow.resources({"installation": "another"}) == ()
        slow.remove([found])
        assert stray.wait() == -signal.SIGKILL
        assert [one.kind for one in slow.resources({})] == ["machine"]
        assert elsewhere.poll() is None
    finally:
        for process in (stray, elsewhere):
            process.kill()
            process.wait()
