"""The terminal of a run whose runner lives on a rented machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cloud.clouds import WHOLE_RUN, simulated
from tests.cloud.laptop import Laptop
from tests.cloud.test_launch import running
from tests.cloud.test_remote_runner import JOB
from tests.spotctl.terminals import CTRL_C, terminal

pytestmark = [WHOLE_RUN, pytest.mark.cloud, pytest.mark.slow]


def test_a_run_goes_on_without_the_terminal_that_moved_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first window is closed; a second one is opened, asked to leave by Ctrl-C, and the run is
    stopped.
    """
    with simulated("aws") as cloud:
        laptop = Laptop(tmp_path, cloud.environment)
        laptop.run(
            "prices", "fetch", "--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type
        )
        places = {
            "bucket": cloud.bucket,
            "region": cloud.region,
            "type": cloud.type,
            "identity": cloud.identity,
        }
        job = laptop.job(JOB.format(cloud=cloud.name, **places))
        for name, value in laptop.variables.items():
            monkeypatch.setenv(name, value)
        with terminal("launch", job, "--yes") as window:
            window.wait_for("the runner now lives on")
            window.wait_for("1 spot")
            window.close()
            window.command.wait(60)
        machines = {machine.id for machine in running(cloud.server)}
        assert len(machines) == 2
        with terminal("resume", "counting") as window:
            window.wait_for("1 spot")
            window.type(CTRL_C)
            assert window.exit_code() == 0
        assert "continues without this computer; 'spotctl stop counting' stops it" in window.screen
        assert {machine.id for machine in running(cloud.server)} == machines
        assert laptop.answer("stop", "counting")["outcome"] == "stopped"
        assert running(cloud.server) == []
        assert cloud.server.resources() == ()
