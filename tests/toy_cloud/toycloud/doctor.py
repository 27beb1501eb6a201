"""Checks of the toy cloud: its folder, and the number of machines that it allows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pricing_data.errors import AccessDenied
from spotctl.clouds.doctor import Finding, Level
from spotctl.clouds.errors import Answers
from spotctl.home.config import Settings
from toycloud.settings import ToySettings

SETUP = "set toy_folder in config.toml to a folder for the machines"


def is_configured(settings: Settings) -> bool:
    """See `DoctorPart`."""
    return settings.text("toy_folder") is not None


# It asks nothing.
def findings(settings: Settings, answers: Answers) -> Iterator[Finding]:  # noqa: ARG001
    """Raises `AccessDenied` if machines can have no folders."""
    folder = Path(settings.text("toy_folder") or "")
    parent = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
    if not os.access(parent, os.W_OK):
        raise AccessDenied(f"{parent} cannot be written", "set another toy_folder")
    yield Finding("toy", "credentials", Level.GOOD, f"folder {folder}")
    most = settings.table("toy", ToySettings).most_machines
    if most < 1:
        yield Finding(
            "toy", "machines", Level.FAILS, "none are allowed", "raise most_machines in [toy]"
        )
    else:
        yield Finding("toy", "machines", Level.GOOD, f"{most} at a time")


POLICIES = {
    "toy": lambda settings: {"folder": settings.text("toy_folder"), "allow": ["read", "write"]}
}
