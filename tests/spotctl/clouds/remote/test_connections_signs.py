"""Signs of life of a machine."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from spotctl.clouds.boot import BootSign
from spotctl.clouds.errors import Unanswered
from spotctl.clouds.remote.connections import MachineConnection, RemoteMachine
from spotctl.clouds.remote.home import RemoteHome
from spotctl.clouds.remote.machine_setup import Spreading


def test_each_change_on_the_console_is_a_sign_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spotctl.clouds.remote.connections.FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr("spotctl.clouds.remote.connections.LONGEST_PAUSE_SECONDS", 0.0)
    shown = ["", "\r\n", "BIOS\n", "BIOS\n", "BIOS\nLinux\n"]
    machine = RemoteMachine("aws:here:i-1", 0, "127.0.0.1", 22, lambda: shown[0], lambda: False)
    one = MachineConnection(machine, 0, RemoteHome(tmp_path), threading.Semaphore(), Spreading())
    signs = list[BootSign]()
    while shown:
        with pytest.raises(Unanswered, match="still booting"):
            one.address()
        signs.append(one.boot_sign())
        del shown[0]
    assert signs[:2] == [BootSign("running")] * 2
    assert [sign.stage for sign in signs[2:]] == ["console"] * 3
    assert signs[2] == signs[3] != signs[4]
