"""Checks of the clouds that are configured on this computer, each through its own SDK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pricing_data.errors import CloudError
from spotctl.clouds.findings import Finding, Level
from spotctl.clouds.parts import doctor_of
from spotctl.clouds.verdicts import refused
from spotctl.home.cloud import rented_clouds

if TYPE_CHECKING:
    from spotctl.home.config import Settings


def findings(settings: Settings) -> Iterator[Finding]:
    """Cloud by cloud; an error ends the checks of that cloud, not of the others."""
    for cloud in rented_clouds():
        doctor = doctor_of(cloud)
        if not doctor.is_configured(settings):
            yield Finding(cloud, "credentials", Level.NOTE, "not configured, so not checked", doctor.SETUP)
            continue
        try:
            yield from doctor.findings(settings)
        except CloudError as error:
            yield refused(cloud, "access", error)
