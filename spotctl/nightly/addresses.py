"""Where nights are reported if the job file or the installation cannot be read, or Python does not start.

The file has lines `webhook=...` and `heartbeat=...`, and is readable by its owner only. `$NAME` stays `$NAME`: its
value is in the environment file alone.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from spotctl.files.job.spec import Notify


def resolved(addresses: Notify, variables: Mapping[str, str]) -> Notify:
    """The addresses with the values of variables that are known."""
    return Notify(_value(addresses.webhook, variables), _value(addresses.heartbeat, variables))


def _value(address: str | None, variables: Mapping[str, str]) -> str | None:
    if address is None or not address.startswith("$"):
        return address
    return variables.get(address[1:]) or address


def read(path: Path) -> Notify | None:
    """The addresses; None if there is no file that can be read."""
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    return Notify(values.get("webhook"), values.get("heartbeat"))


def keep(path: Path, addresses: Notify) -> None:
    """Writes the addresses, unless they are there."""
    if read(path) == addresses:
        return
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.writelines(f"{name}={address}\n" for name, address in asdict(addresses).items() if address is not None)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
