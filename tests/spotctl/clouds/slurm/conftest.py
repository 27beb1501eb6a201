"""One cluster for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spotctl.clouds.slurm.provider import SlurmProvider
from tests.servers.slurm_cluster import SlurmCluster, slurm_cluster
from tests.spotctl.clouds.slurm.world import World, world


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with slurm_cluster() as made:
        yield made


@pytest.fixture
def made(cluster: SlurmCluster, tmp_path: Path) -> Iterator[World]:
    with world(cluster, tmp_path) as own:
        yield own


@pytest.fixture
def provider(made: World) -> Iterator[SlurmProvider]:
    with closing(made.provider()) as provider:
        yield provider
