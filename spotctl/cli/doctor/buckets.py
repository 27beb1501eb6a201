"""Checks of the buckets where this home has stored data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pricing_data.units import counted
from spotctl.agent.blobs.bucket import StoreRefused, StoreUnavailable
from spotctl.agent.data_sets import gigabytes
from spotctl.clouds.findings import Finding, Level
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.run.environment import LAUNCHER
from spotctl.run.stored_data.removing import DataUse, DataUses, missing_sets

if TYPE_CHECKING:
    from spotctl.agent.blobs.identity import StoreIdentity
    from spotctl.home.config import Settings

_CURE = "allow listing, reading, writing and deleting below spotctl-data/ there"


def findings(settings: Settings, identity: StoreIdentity = LAUNCHER) -> Iterator[Finding]:
    """Whether each bucket is in reach, and still has the data."""
    try:
        uses = DataUses(Paths(settings.home).data).all()
    except BadRequest as error:
        yield Finding("data", "record", Level.FAILS, str(error), "remove the file")
        return
    for bucket in dict.fromkeys(use.location.bucket for use in uses):
        yield _of_bucket(bucket, [use for use in uses if use.location.bucket == bucket], identity)


def _of_bucket(bucket: str, uses: list[DataUse], identity: StoreIdentity) -> Finding:
    try:
        missing = missing_sets(bucket, [use.location for use in uses if not use.may_lack], identity)
    except StoreRefused as error:
        level = Level.FAILS if isinstance(error, StoreUnavailable) else Level.NO_ACCESS
        return Finding("data", bucket, level, f"not in reach: {error}", _CURE)
    detail = f"{counted(len(uses), 'data set')} of {gigabytes(sum(use.size for use in uses))} in all"
    if missing:
        return Finding(
            "data", bucket, Level.NOTE, f"{detail}, {missing} of them gone", "launch the job to store it again"
        )
    return Finding("data", bucket, Level.GOOD, detail)
