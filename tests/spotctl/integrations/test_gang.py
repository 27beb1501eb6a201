"""The machines of a gang: their stores, their restarts, and the state that survives in them.

`python -m bench.torch_gang` kills machines of a real gang, the host of the c10d store among them.
"""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agileml.errors import BadInput
from spotctl.integrations import gang
from spotctl.integrations.gang_saves import (
    METADATA,
    GangSettings,
    SaveName,
    Saves,
)
from tests.spotctl.integrations.conftest import Three


def written(folder: Path, file: str, parts: list[str] | None = None) -> Path:
    """What one rank has written: its part, and the metadata of all parts."""
    folder.mkdir()
    (folder / file).write_bytes(file.encode() * 100_000)
    if parts is not None:
        (folder / METADATA).write_bytes(pickle.dumps(metadata_of(parts)))
    return folder


def metadata_of(parts: list[str]) -> Any:  # noqa: ANN401 - of PyTorch, which need not be installed
    """The metadata of a save with these files."""
    metadata = pytest.importorskip("torch.distributed.checkpoint.metadata")
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    infos = {metadata.MetadataIndex(part): _StorageInfo(part, 0, 1) for part in parts}
    return metadata.Metadata({}, storage_data=infos)


def test_a_machine_with_another_secret_gets_nothing(three: Three, tmp_path: Path) -> None:
    Saves(three.peers(0), 0, None).store(
        SaveName(1, "aa"), written(tmp_path / "r", "part", ["part"])
    )
    assert three.peers(1, b"another secret, long enough").names() == {}


def test_all_machines_number_the_next_start_alike(three: Three) -> None:
    assert [gang.next_round(three.peers(machine), 0) for machine in (2, 0, 1)] == [1, 1, 1]
    assert gang.next_round(three.peers(1), 1) == 2
    three.lose(1)
    assert [gang.next_round(three.peers(machine), 0) for machine in (0, 2)] == [2, 2]


def test_machines_that_do_not_answer_are_lost(three: Three) -> None:
    ports = SimpleNamespace(hosts=("127.0.0.1",) * 3, own=0, peers=three.addresses)
    three.lose(1)
    assert gang.alive(ports) == {0, 2}  # type: ignore[arg-type]


WORDS = [
    "--machines",
    "10.0.0.1,10.0.0.2",
    "--machine",
    "1",
    "--port",
    "7000",
    "train.py",
    "--lr",
    "3",
]


def test_torchrun_gets_the_machines_and_the_store() -> None:
    given = gang._parser().parse_args(WORDS)
    machines, settings = gang.settings_of(given, {"GANG_SECRET": "s"})
    assert GangSettings.of({**settings.variables(), "GANG_SECRET": "s"}) == settings
    command = gang.torchrun_command(given, machines, 0, 3, 2)
    assert {
        "--nnodes=1:2",
        "--rdzv-endpoint=10.0.0.1:7002",
        "--rdzv-id=gang-3",
        "--local-addr=10.0.0.2",
    } <= {*command}
    assert command[-3:] == ["train.py", "--lr", "3"]
    elsewhere = gang._parser().parse_args(["--store", "10.0.0.9:29400", *WORDS])
    assert "--rdzv-endpoint=10.0.0.9:29400" in gang.torchrun_command(elsewhere, machines, 0, 3, 2)


def test_in_a_job_spotctl_names_the_machines() -> None:
    told = {
        "SPOTCTL_NODE_ADDRESSES": "a,b,c",
        "SPOTCTL_NODE_RANK": "2",
        "MASTER_PORT": "7000",
        "GANG_SECRET": "s",
    }
    machines, _ = gang.settings_of(gang._parser().parse_args(["train.py"]), told)
    assert machines == gang.GangMachines(("a", "b", "c"), 2, 7000)
    for missing, why in (
        ("GANG_SECRET", r"\$GANG_SECRET is not set"),
        ("MASTER_PORT", "needs --machines HOST,HOST"),
    ):
        with pytest.raises(BadInput, match=why):
            gang.settings_of(gang._parser().parse_args(["train.py"]), {**told, missing: ""})
    with pytest.raises(
        BadInput, match=r"start the script with python -m spotctl\.integrations\.gang"
    ):
        GangSettings.of({})


class Planted:
    """A pickle that makes a folder, if it is loaded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._folder),)
