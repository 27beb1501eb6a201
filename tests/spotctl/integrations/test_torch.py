"""Saves of PyTorch's objects."""

from __future__ import annotations

import pickle
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from spotctl.integrations.gang_saves import (
    METADATA,
    GangSettings,
)
from tests.spotctl.integrations.conftest import SECRET
from tests.spotctl.integrations.test_gang import Planted


def test_a_gang_of_one_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed as dist

    from spotctl.integrations.torch import Gang

    def made() -> tuple[torch.nn.Module, torch.optim.Optimizer]:  # type: ignore[name-defined]
        net = torch.nn.Linear(3, 2)
        return net, torch.optim.AdamW(net.parameters())

    def train(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:  # type: ignore[name-defined]
        net(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    settings = GangSettings(("127.0.0.1:1",), 0, tmp_path, SECRET)
    for name, value in {**settings.variables(), "GANG_SECRET": SECRET.decode()}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("sys.excepthook", None)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        (net, optimizer), (other, others) = made(), made()
        with closing(Gang(net, optimizer, every=2)) as first:
            assert first.restore() == 0
            weights = []
            for step in (1, 2, 3):
                train(net, optimizer)
                first.step(step)
                weights.append(net.weight.detach().clone())
        with closing(Gang(other, others, every=2)) as second:
            assert second.restore() == 2
            assert torch.equal(other.weight, weights[1])
            train(other, others)
            assert torch.equal(other.weight, weights[2])
    finally:
        dist.destroy_process_group()


def test_pytorch_unpickles_nothing_that_another_machine_has_written(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed as dist
    from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.filesystem import FileSystemWriter

    from spotctl.integrations.torch import _PlainPlanner, _PlainReader

    class Stateful:
        def __init__(self) -> None:
            self.state: dict[str, Any] = {"rate": 0.1, "steps": (1, 2), "name": "x", "none": None}

        def state_dict(self) -> dict[str, Any]:
            return self.state

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.state = state

    def restored(folder: Path) -> dict[str, Any]:
        state = {"weights": torch.zeros(3), "more": Stateful()}
        state["more"].state = dict.fromkeys(state["more"].state)
        state_dict_loader.load(state, storage_reader=_PlainReader(folder), planner=_PlainPlanner())
        return {"weights": state["weights"], **state["more"].state}

    def stored(folder: Path, steps: object) -> Path:
        more = Stateful()
        more.state["steps"] = steps
        writer = FileSystemWriter(folder, single_file_per_rank=True, sync_files=False)
        state_dict_saver.save({"weights": torch.ones(3), "more": more}, storage_writer=writer)
        return folder

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        whole = restored(stored(tmp_path / "whole", (1, 2)))
        assert torch.equal(whole.pop("weights"), torch.ones(3))
        assert whole == {"rate": 0.1, "steps": (1, 2), "name": "x", "none": None}
        with pytest.raises(CheckpointException, match=r"posix\.mkdir"):
            restored(stored(tmp_path / "in a part", Planted(tmp_path / "ran")))

        folder = stored(tmp_path / "in the metadata", 1)
        (folder / METADATA).write_bytes(pickle.dumps(Planted(tmp_path / "ran")))
        # PyTorch looks for the metadata of a single rank where that of all cannot be read.
        (folder / f"__0{METADATA}").write_bytes(pickle.dumps(Planted(tmp_path / "ran")))
        with pytest.raises(CheckpointException, match=r"posix\.mkdir"):
            restored(folder)
        assert not (tmp_path / "ran").exists()
    finally:
        dist.destroy_process_group()
