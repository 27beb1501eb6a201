"""A published job is data: nodes read what was published, and nothing that somebody planted is
run."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agileml.apps.registry import TrainerSource
from agileml.errors import BadInput
from agileml.job import Stopping, TrainingJob
from agileml.params.layout import Layout
from agileml.policies.dbw import DBW
from agileml.policies.stage import FixedStage
from agileml.policies.stragglers import Stragglers
from agileml.roles.node import JobSettings
from agileml.runtime import attach
from agileml.runtime.attach import PublishedJob, publish, published_in
from agileml.runtime.blob_store import FileBlobStore
from agileml.runtime.node_process import TrainerRole
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.slowdowns import SlowWorker
from agileml.transport import TcpAddress
from agileml.work import WorkPlan

RENDEZVOUS = FolderRendezvous(Path("state"), b"", TcpAddress("127.0.0.1", 7), "0.1")
ARGUMENTS = {
    "rank": 3,
    "rate": np.float64(0.5),
    "file": "ratings.csv",
    "sizes": (1, [2, {"a": None}]),
    "code": b"\0\xff",
}
JOB = TrainingJob(
    TrainerSource("mf", ARGUMENTS),
    1,
    1,
    Stopping(clocks=5),
    JobSettings(seed=3, deterministic=True, stragglers=Stragglers(reassign=True)),
    slowdowns=(SlowWorker(0.5, 2.0),),
)
TRAINER = TrainerRole(
    name="",
    reliable=False,
    rendezvous=RENDEZVOUS,
    job=JOB,
    work=WorkPlan((4, 4), 2, 0),
    layout=Layout.cut({"w": np.zeros((4, 2), np.float32)}, 2),
    partitions=2,
)


class Planted:
    """Its reading runs the code of whoever wrote it."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._mark,)


def in_folder(folder: Path, content: bytes) -> PublishedJob | None:
    folder.chmod(0o700)
    FileBlobStore(folder).put(attach._JOB_BLOB, [content])
    return published_in(folder)


def test_policies_of_the_controller_are_not_published(tmp_path: Path) -> None:
    settings = replace(JOB.settings, stragglers=Stragglers(backup_workers=DBW()), slack=0)
    tmp_path.chmod(0o700)
    publish(
        replace(TRAINER, job=replace(JOB, settings=settings, stage=FixedStage(2))),
        FileBlobStore(tmp_path),
    )
    published = published_in(tmp_path)
    assert published is not None
    assert published.role.job.settings.stragglers == Stragglers(backup_workers=True)
    assert published.role.job.stage is None


def test_a_planted_pickle_is_not_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    assert in_folder(tmp_path, pickle.dumps(Planted(mark))) is None
    with pytest.raises(BadInput, match="not the bytes of a published job"):
        in_folder(tmp_path, b"junk" + pickle.dumps(Planted(mark)))
    assert not mark.exists()
