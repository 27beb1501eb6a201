"""The first process of a pod: what it makes of the order's variables, and of the signal that comes
before a pod is taken back."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from spotctl.clouds.runpod import machine
from spotctl.clouds.runpod.provider import RunPodProvider
from tests.spotctl.clouds.runpod.test_provider import alive, sent
from tests.spotctl.clouds.runpod.world import World, order
from tests.waiting import eventually


def test_it_starts_the_machine_and_notes_the_signal(
    made: World, provider: RunPodProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (rented,) = provider.create(order(machines=1))
    (given,) = sent(made)
    first = json.loads(given["dockerArgs"])
    (tmp_path / "environment").touch()
    # Its own commands, in a folder.
    script = first["cmd"][0].replace("/etc/ssh", str(tmp_path / "ssh"))
    script = script.replace("/opt/spotctl", str(tmp_path / "opt"))
    script = script.replace("/etc/environment", str(tmp_path / "environment"))
    script = script.replace("/run/sshd", str(tmp_path / "run"))
    # The image has no sshd, but a package has it.
    programs, sshd = tmp_path / "bin", tmp_path / "sshd"
    programs.mkdir()
    script = script.replace("/usr/sbin/sshd", str(sshd))
    installs = f"#!/bin/sh\ncase $* in *openssh-server) cp {programs}/server {sshd} ;; esac\n"
    (programs / "apt-get").write_text(installs)
    (programs / "server").write_text(f"#!/bin/sh\necho $* >{tmp_path}/served\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    of_runpod = {"RUNPOD_PUBLIC_IP": "198.51.100.7", "RUNPOD_TCP_PORT_22": "40001"}
    variables = {one["key"]: one["value"] for one in given["env"]} | of_runpod
    process = subprocess.Popen(
        [*first["entrypoint"], script],
        env={"PATH": f"{programs}:/usr/bin:/bin", "RUNPOD_API_KEY": "hush", **variables},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"lease 1")
        assert (tmp_path / "served").read_text() == "-o UsePAM=no\n"
        written = (tmp_path / "environment").read_text().splitlines()
        assert set(written) == {f"{name}={value}" for name, value in of_runpod.items()}
        public = (tmp_path / "ssh" / "ssh_host_ed25519_key.pub").read_text().strip()
        assert provider.console(rented.id) == f"spotctl: host key {public}\n"

        monkeypatch.setattr(machine, "SIGNALLED", str(tmp_path / "opt" / "signalled"))
        poller = machine.notices({})
        assert poller.poll() == []
        process.send_signal(signal.SIGTERM)
        eventually(lambda: bool(poller.poll()))
        (notice,) = poller.poll()
        assert (notice.kind, notice.source) == ("evict", "runpod")
        assert abs(notice.until / 1e6 - time.time() - 5) < 60
        assert process.poll() is None
    finally:
        subprocess.run(["/bin/kill", "-KILL", "--", f"-{process.pid}"], check=False)
        process.wait()
        process.stdout.close()  # type: ignore[union-attr]
    assert alive(made)
