"""The start-up script: what is in it, and what is not. `test_rented` runs it."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pricing_data.market import Market
from spotctl.agent.container.payload import Payload
from spotctl.clouds.provider import MachineRequest
from spotctl.clouds.remote.agents import MAX_SCRIPT_BYTES, start_up_script
from spotctl.home.errors import BadRequest

MARKET = Market("aws", "us-east-1", "us-east-1a", "m5.large")
NOW = 1_900_000_000_000_000
KEY = "ssh-ed25519 AAAA spotctl"


def script(payload: Payload | None = None, seconds: float = 600) -> str:
    tags = {"run": "r-1"}
    until = NOW + int(seconds * 1e6)
    request = MachineRequest(
        "t1", MARKET, 2, None, until, tags, payload, {"HF_TOKEN": "planted-secret"}
    )
    return start_up_script(request, "gcp", KEY, NOW)


def told(text: str) -> dict[str, object]:
    """What the script writes to the machine's file."""
    packed = re.findall(r"base64 -d <<'EOF' \| gzip -d >(\S+)\n(.*?)\nEOF\n", text, re.DOTALL)
    files = {path: gzip.decompress(base64.b64decode(content)) for path, content in packed}
    assert b"def delete_self" in files["$root/self_deletion.py"]
    values: dict[str, object] = json.loads(files["$root/machine.json"])
    return values


def test_a_shell_can_read_it_and_a_cloud_can_take_it() -> None:
    text = script(Payload("p", ("sh", "-c", "echo 'hello' \"$HOME\" \\ @USER@")))
    assert text.startswith("#!/bin/sh\n")
    assert len(text.encode()) < MAX_SCRIPT_BYTES
    assert not re.search(r"@[A-Z_]+@", text)
    subprocess.run(["/bin/sh", "-n"], input=text, text=True, check=True)


def test_it_holds_the_lease_the_payload_and_the_public_key() -> None:
    payload = Payload("p", ("sh", "-c", "echo 'hello' \"$HOME\" \\ @USER@"), {"A": "ü"})
    text = script(payload)
    assert told(text) == {
        "cloud": "gcp",
        "lease_until": NOW + 600_000_000,
        "payload": payload.to_json(),
    }
    assert '"1900000600 $((uptime + 600))"' in text
    assert f"'restrict,port-forwarding,pty {KEY}'" in text
    assert told(script())["payload"] is None


def test_a_lease_that_has_ended_ends_the_machine_at_once() -> None:
    assert '"1899999940 $((uptime + 0))"' in script(seconds=-60)


def test_the_watchdog_comes_before_all_that_can_fail() -> None:
    text = script()
    later = (text.index(word) for word in ("useradd", "machine.json", KEY))
    assert text.index("setsid sh $root/watchdog") < min(later)


def test_it_holds_no_secret() -> None:
    text = script(Payload("p", ("true",)))
    assert "planted-secret" not in text
    assert "planted-secret" not in json.dumps(told(text))


def test_a_payload_that_does_not_fit_is_refused() -> None:
    noise = random.Random(1).randbytes(10_000).hex()
    with pytest.raises(BadRequest, match="make the job's setup or environment shorter"):
        script(Payload("p", ("sh", "-c", noise)))


@pytest.mark.parametrize(
    ("pythons", "installs"),
    [
        ({"python3": (3, 12)}, False),
        ({"python3": (3, 10)}, True),
        ({"python3": (3, 10), "python3.11": (3, 11)}, False),
        ({}, True),
    ],
)
def test_an_image_with_an_old_python_gets_a_new_one(
    tmp_path: Path, pythons: dict[str, tuple[int, int]], installs: bool
) -> None:
    part = (
        script()
        .partition("# The agent needs Python 3.11")[2]
        .partition("key=/etc")[0]
        .partition("\n")[2]
    )
    programs = {name: f"exit {int(version < (3, 11))}" for name, version in pythons.items()}
    programs["apt-get"] = 'echo "$*" >>installed'
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", part], cwd=tmp_path, env={"PATH": str(tmp_path)}, check=False
    )
    assert done.returncode == 0
    assert (tmp_path / "installed").exists() is installs
    if installs:
        assert "install python3.11" in (tmp_path / "installed").read_text()


def test_an_image_does_not_upgrade_itself_while_a_job_installs(tmp_path: Path) -> None:
    """`apt-get update` does not wait for the lock that another update holds, as fresh images do
    when they boot."""
    part = "if [ -d /etc/apt/" + script().partition("if [ -d /etc/apt/")[2].partition("\nfi\n")[0]
    (tmp_path / "systemctl").write_text('#!/bin/sh\necho "$*" >>systemctl-was-called\n')
    (tmp_path / "systemctl").chmod(0o755)
    part = part.replace("/etc/apt/apt.conf.d", str(tmp_path)) + "\nfi\n"
    subprocess.run(
        ["/bin/sh", "-euc", f"user=spotctl\n{part}"],
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
        check=True,
    )
    called = (tmp_path / "systemctl-was-called").read_text()
    assert called == "mask --now apt-daily.timer apt-daily-upgrade.timer apt-daily.service\n"

    settings = tmp_path / "90-spotctl"
    assert settings.read_text().count(";\n") == 2
    if (program := shutil.which("apt-config")) is not None:
        read = subprocess.run(
            [program, "dump", "DPkg::Lock::Timeout"],
            env={"APT_CONFIG": str(settings)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert read.stdout == 'DPkg::Lock::Timeout "300";\n'
