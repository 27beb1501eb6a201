"""A node reads the job as it was published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agileml.job import Stopping
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.run.fleet_job import ModelSource, PipelineRole
from agileml.runtime.attach import publish, published_in
from agileml.runtime.blob_store import FileBlobStore
from agileml.runtime.role_specs import NodeRole
from tests.agileml.runtime.test_attach import JOB, RENDEZVOUS, TRAINER

PIPELINE = PipelineRole(
    name="", reliable=False, rendezvous=RENDEZVOUS, job=JOB, work=ModelSource(Optimizer("sgd", 0.1), "flush", 4),
    partitions=6,
)  # fmt: skip


@pytest.mark.parametrize("role", [TRAINER, PIPELINE], ids=["trainer", "pipeline"])
def test_nodes_read_what_was_published(role: NodeRole, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    publish(role, FileBlobStore(tmp_path))
    published = published_in(tmp_path)
    assert published is not None
    assert published.role == replace(role, job=replace(JOB, stopping=Stopping(clocks=1)))
    assert type(published.role) is type(role)
    assert type(published.role.job.source.arguments["rate"]) is float
