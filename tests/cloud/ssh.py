"""A client of machines for tests: a key, user data that admits it, and commands over ssh."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import eventually


@dataclass(frozen=True)
class Ssh:
    """`user_data` admits this client's key as root, and then runs a script."""

    key: Path

    @classmethod
    def in_folder(cls, folder: Path) -> Ssh:
        key = folder / "client_key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        return cls(key)

    def user_data(self, script: str = "") -> bytes:
        public = self.key.with_suffix(".pub").read_text().strip()
        admit = f"mkdir -p -m 700 /root/.ssh\necho '{public}' >/root/.ssh/authorized_keys\n"
        return f"#!/bin/sh\n{admit}{script}\n".encode()

    def try_run(self, address: str, command: str) -> subprocess.CompletedProcess[str]:
        options = {
            "StrictHostKeyChecking": "no",
            "UserKnownHostsFile": "/dev/null",
            "LogLevel": "ERROR",
            "BatchMode": "yes",
            "ConnectTimeout": "20",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        line = ["ssh", "-F", "none", "-i", str(self.key), *words, f"root@{address}", command]
        return subprocess.run(
            line, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )

    def run(self, address: str, command: str) -> str:
        """What a command prints; tried until the machine has booted."""
        done: list[subprocess.CompletedProcess[str]] = []

        def answered() -> bool:
            done.append(self.try_run(address, command))
            return done[-1].returncode != 255

        eventually(answered)
        assert done[-1].returncode == 0, done[-1]
        return done[-1].stdout
