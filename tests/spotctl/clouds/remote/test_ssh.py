"""What ssh's messages mean, and what the console proves; `test_rented` connects to real
machines."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from spotctl.clouds.errors import NotPermitted, Unanswered
from spotctl.clouds.remote.ssh import (
    HostKeyDiffers,
    SshConnection,
    SshHost,
    client_environment,
    failure_of,
    host_key_of,
    lost,
    options,
)

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILeA+OpggkFY3N1ZtNJ4g2M1+y2wAQrbBxDWhOm/dEri"


def host(folder: Path, port: int = 22) -> SshHost:
    known = folder / "known host"
    known.write_text(f"machine {KEY}\n")
    return SshHost("aws:us-east-1:i-1", "127.0.0.1", port, "spotctl", folder / "key", known)


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("spotctl@10.0.0.1: Permission denied (publickey).", "does not accept this home's ssh key"),
        ("ssh: connect to host 10.0.0.1 port 22: Connection refused", "ssh does not answer yet"),
        ("kex_exchange_identification: read: Connection reset by peer", "ssh does not answer yet"),
        (
            "ssh: connect to host 10.0.0.1 port 22: Connection timed out",
            "its firewall does not admit this computer",
        ),
        (
            "ssh: connect to host 10.0.0.1 port 22: No route to host",
            "its firewall does not admit this computer",
        ),
        ("Timeout, server 10.0.0.1 not responding.", "its firewall does not admit this computer"),
        ("\nsomething\nnew\n\n", "ssh failed: new"),
        ("", "it gave no reason"),
    ],
)
def test_every_message_becomes_one_line(tmp_path: Path, said: str, meaning: str) -> None:
    error = failure_of(host(tmp_path), said)
    assert isinstance(error, Unanswered)
    assert str(error).startswith("aws:us-east-1:i-1 at 127.0.0.1 port 22: ")
    assert meaning in str(error)
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("code", "said", "why"),
    [
        (7, "", ""),
        (255, "OpenSSH_9\nAuthenticated to x\ndebug1: channel 0: rtype exit-status reply 0\n", ""),
        (255, "OpenSSH_9\nAuthenticated to x\ndebug1: channel 0: rtype exit-signal reply 0\n", ""),
        (
            255,
            "OpenSSH_9\nAuthenticated to x\nTimeout, server x not responding.\n",
            "the connection broke",
        ),
        (
            255,
            "OpenSSH_9\ndebug1: one\nssh: connect to host x port 22: Connection timed out\n",
            "cut off",
        ),
        (255, "", "it gave no reason"),
    ],
)
def test_the_status_of_a_command_is_no_failure_of_the_connection(
    tmp_path: Path, code: int, said: str, why: str
) -> None:
    (tmp_path / "said").write_text(said)
    error = lost(host(tmp_path), code, tmp_path / "said")
    assert (error is None) is not bool(why)
    assert why in str(error)
    assert not (tmp_path / "said").exists()


def test_another_host_key_is_no_passing_failure(tmp_path: Path) -> None:
    said = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n"
    error = failure_of(host(tmp_path), said)
    assert isinstance(error, HostKeyDiffers)
    assert isinstance(error, NotPermitted)
    assert "nothing was sent" in str(error)


def test_the_first_host_key_on_the_console_counts() -> None:
    other = KEY.replace("ILeA", "IXXX")
    assert host_key_of(f"boot\r\nspotctl: host key {KEY}\r\nspotctl: host key {other}\r\n") == KEY
    assert host_key_of("[   12.1] cloud-init[900]: spotctl: host key " + KEY + "\n") == KEY


@pytest.mark.parametrize(
    "console",
    ["", "spotctl: ready", f"spotctl: host key {KEY}", "spotctl: host key ssh-rsa AAAA\n"],
)
def test_a_console_without_the_whole_key_proves_nothing(console: str) -> None:
    assert host_key_of(console) is None


def test_a_port_at_which_nothing_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(Unanswered, match="ssh does not answer yet"):
        SshConnection(host(tmp_path, port), tmp_path / "c.c", tmp_path / "c.a")
    assert not (tmp_path / "c.e").exists()


def test_the_client_gets_nothing_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "planted")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    assert set(client_environment()) <= {"PATH", "HOME", "TMPDIR", "TERM", "LC_ALL"}
    words = options(host(tmp_path), tmp_path / "100%")
    assert words[:2] == ["-F", "none"]
    for setting in ("StrictHostKeyChecking", "IdentitiesOnly", "BatchMode"):
        assert f'{setting}="yes"' in words
    assert f'ControlPath="{tmp_path}/100%%"' in words
