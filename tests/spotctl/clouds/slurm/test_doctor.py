"""Findings about a real cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.clouds.doctor import Level
from spotctl.clouds.errors import NOT_KEPT
from spotctl.clouds.slurm.doctor import findings, is_configured
from spotctl.home import config
from tests.servers.slurm_cluster import needs_slurm
from tests.spotctl.clouds.slurm.world import World

pytestmark = [pytest.mark.slow, needs_slurm]


def test_each_partition_is_asked_whether_it_takes_jobs(made: World, tmp_path: Path) -> None:
    settings = config.load({}, tmp_path)
    assert is_configured(settings)
    said = list(findings(settings, NOT_KEPT))
    assert [(one.what, one.level) for one in said] == [
        ("cluster", Level.GOOD),
        ("partition spot (preemptible)", Level.GOOD),
        ("partition owner", Level.GOOD),
    ]
    assert not made.cluster.ever()
