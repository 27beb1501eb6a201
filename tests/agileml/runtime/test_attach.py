"""A published job is read by its nodes, also one that an earlier version has published."""

from __future__ import annotations

import importlib
import pickle
import sys
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from agileml.apps.registry import TrainerSource
from agileml.job import Stopping, TrainingJob
from agileml.params.layout import Layout
from agileml.pipeline.optimizers import Optimizer
from agileml.pipeline.run.fleet_job import ModelSource, PipelineRole
from agileml.runtime import attach
from agileml.runtime.attach import PublishedJob, published_in
from agileml.runtime.blob_store import FileBlobStore
from agileml.runtime.node_process import TrainerRole
from agileml.runtime.rendezvous import FolderRendezvous
from agileml.work import WorkPlan

COMMON = {
    "name": "",
    "reliable": False,
    "rendezvous": FolderRendezvous(Path("state"), b""),
    "job": TrainingJob(TrainerSource("mf", {}), 1, 1, Stopping(clocks=5)),
}


def of_before(monkeypatch: pytest.MonkeyPatch, module: str, kind: type, names: tuple[str, ...]) -> type:
    """A class as an earlier version had it: elsewhere, or with other fields."""
    former = make_dataclass(kind.__name__, [(name, Any) for name in names], frozen=True, slots=True)
    former.__module__ = module
    if module not in sys.modules:
        monkeypatch.setitem(sys.modules, module, ModuleType(module))
    monkeypatch.setattr(sys.modules[module], kind.__name__, former, raising=False)
    return former


@dataclass(frozen=True)
class Former:
    """Where a class was, and the fields of a role that stood behind those that all roles have."""

    role: type
    module: str
    last: dict[str, object]
    now: dict[str, object]


LAYOUT = Layout.cut({"w": np.zeros((4, 2), np.float32)}, 2)
PLAN = WorkPlan((4, 4), 2, 0)
SOURCE = ModelSource(Optimizer("sgd", 0.1), "flush", 4)


@pytest.mark.parametrize(
    "former",
    [
        Former(
            TrainerRole,
            "agileml.runtime.node_process",
            {"instance": "i", "plan": PLAN, "layout": LAYOUT},
            {"instance": "i", "work": PLAN, "layout": LAYOUT, "partitions": 2},
        ),
        Former(
            PipelineRole,
            "agileml.pipeline.run.fleet_node",
            {"instance": "i", "task": SOURCE, "layers": 6},
            {"instance": "i", "work": SOURCE, "partitions": 6},
        ),
    ],
)
def test_a_job_that_an_earlier_version_has_published_is_read(
    former: Former, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    with monkeypatch.context() as patch:
        role = of_before(patch, former.module, former.role, (*COMMON, *former.last))(**COMMON, **former.last)
        for name, kind in (("agileml.stopping", Stopping), ("agileml.work.plan", WorkPlan)):
            patch.setitem(sys.modules, name, ModuleType(name))
            patch.setattr(sys.modules[name], kind.__name__, kind, raising=False)
            patch.setattr(kind, "__module__", name)
        content = pickle.dumps(PublishedJob(role, {"code.py": b""}))
    FileBlobStore(tmp_path).put(attach._JOB_BLOB, [content])
    published = published_in(tmp_path)
    assert published is not None
    assert b"agileml.stopping" in content
    assert published.files == {"code.py": b""}
    assert {field.name: getattr(published.role, field.name) for field in fields(published.role)} == {
        **COMMON,
        **former.now,
    }
    assert type(published.role) is former.role


@pytest.mark.parametrize("module", sorted(set(attach._MOVED.values())))
def test_the_modules_to_which_classes_have_moved_are_there(module: str) -> None:
    assert importlib.import_module(module)
