"""The machines of a gang: their stores, their restarts, and the state that survives in them.

`python -m bench.torch_gang` kills machines of a real gang, the host of the c10d store among them.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agileml.errors import AgileMLError, BadInput, Unrecoverable
from agileml.runtime.blob_store import FileBlobStore
from agileml.transport import TcpAddress
from spotctl.agent.data.transfer import listing
from spotctl.integrations import gang
from spotctl.integrations.gang_saves import (
    METADATA,
    GangSettings,
    Peers,
    PeerServer,
    SaveName,
    Saves,
    files_of,
    grouped,
)

SECRET = b"the secret of a gang in a test"


class Three:
    """Three machines, each with a store that it serves."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        stores = [FileBlobStore(folder / str(machine) / "store") for machine in range(3)]
        self.servers = [PeerServer(store, SECRET, TcpAddress("127.0.0.1", 0)) for store in stores]
        self.folder, self._closed, self._stack = folder, set[int](), stack
        for machine in range(3):
            stack.callback(self.lose, machine)

    @property
    def addresses(self) -> list[TcpAddress]:
        found = [server.address for server in self.servers]
        return [address for address in found if isinstance(address, TcpAddress)]

    def peers(self, own: int, secret: bytes = SECRET) -> Peers:
        made = Peers(self.addresses, own, secret, self.folder / str(own) / "store")
        self._stack.callback(made.close)
        return made

    def saves(self, own: int, checkpoints: Path | None = None) -> Saves:
        return Saves(self.peers(own), 1, checkpoints)

    def lose(self, machine: int) -> None:
        if machine not in self._closed:
            self._closed.add(machine)
            self.servers[machine].close()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Three]:
    with ExitStack() as stack:
        yield Three(tmp_path, stack)


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


def test_a_save_survives_its_machine_once_every_part_is_stored(
    three: Three, tmp_path: Path
) -> None:
    name, checkpoints = SaveName(40, "aa"), tmp_path / "checkpoints"
    checkpoints.mkdir()
    first, second = three.saves(0, checkpoints), three.saves(1)
    first.store(name, written(tmp_path / "r0", "__0_0.distcp", ["__0_0.distcp", "__1_0.distcp"]))
    assert first.newest() is None
    second.store(name, written(tmp_path / "r1", "__1_0.distcp"))
    assert first.newest() == second.newest() == three.saves(2).newest() == name
    three.lose(0)
    assert three.saves(2).newest() == name
    three.saves(2).gather(name, tmp_path / "gathered")
    assert sorted(path.name for path in (tmp_path / "gathered").iterdir()) == [
        METADATA,
        "__0_0.distcp",
        "__1_0.distcp",
    ]
    assert (tmp_path / "gathered" / "__0_0.distcp").read_bytes() == b"__0_0.distcp" * 100_000
    # The second machine held the only other copy of the first one's part.
    three.lose(1)
    assert three.saves(2).newest() is None


def test_the_checkpoint_counts_where_no_peer_has_more(three: Three, tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    saves = three.saves(0, checkpoints)
    for step in (20, 40):
        saves.store(SaveName(step, "aa"), written(tmp_path / f"r{step}", "part", ["part"]))
        saves.checkpoint(SaveName(step, "aa"))
    assert [path.name for path in checkpoints.iterdir()] == ["gang-0000000040-aa"]
    copied = [name for name, *_ in listing(checkpoints)]
    assert copied == ["gang-0000000040-aa/metadata", "gang-0000000040-aa/part"], (
        "hidden files would not be copied"
    )
    saves.drop_before(SaveName(50, "aa"))
    assert not [*(tmp_path / "0" / "store" / "saves").iterdir()], "old saves leave no empty folders"
    three.lose(1)
    assert saves.newest() == SaveName(40, "aa")
    saves.gather(SaveName(40, "aa"), tmp_path / "gathered")
    assert sorted(path.name for path in (tmp_path / "gathered").iterdir()) == [METADATA, "part"]


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


class Planted:
    """A pickle that makes a folder, if it is loaded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._folder),)


def naming(module: str, name: str) -> bytes:
    """A pickle that is nothing but something's name."""
    words = (bytes([0x8C, len(word)]) + word.encode() for word in (module, name))
    return b"\x80\x04" + b"".join(words) + b"\x93."


def test_a_planted_save_is_not_loaded_and_named(
    three: Three, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, planted, checkpoints = SaveName(40, "aa"), SaveName(60, "bb"), tmp_path / "checkpoints"
    checkpoints.mkdir()
    three.saves(0).store(good, written(tmp_path / "good", "part", ["part"]))
    folder = written(tmp_path / "planted", "part", ["part"])
    (folder / METADATA).write_bytes(pickle.dumps(Planted(tmp_path / "ran")))
    three.saves(1).store(planted, folder)

    saves = three.saves(0, checkpoints)
    assert saves.newest() == good
    assert (
        "save at step 60 is not used: .metadata is not loaded: it names posix.mkdir"
        in capsys.readouterr().err
    )
    with pytest.raises(AgileMLError, match=r"names posix\.mkdir"):
        saves.gather(planted, tmp_path / "gathered")

    # An earlier machine may have left it in the checkpoint, too.
    saves.checkpoint(good)
    (checkpoints / f"gang-{planted}").mkdir()
    (checkpoints / f"gang-{planted}" / "metadata").write_bytes((folder / METADATA).read_bytes())
    (checkpoints / "gang-7").mkdir()
    (checkpoints / "gang-7" / "metadata").touch()
    assert saves.newest() == good
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (naming("os", "system"), r"os\.system"),
        (naming("torch", "load"), r"torch\.load"),
        (naming("torch", "serialization.os.system"), r"torch\.serialization\.os\.system"),
        (naming("torch.serialization", "load"), r"torch\.serialization\.load"),
        (naming("torch.distributed.checkpoint.metadata", "os.system"), r"metadata\.os\.system"),
        (naming("builtins", "eval"), r"builtins\.eval"),
        (naming("torch", "float32"), "not loaded"),
        (pickle.dumps(3), "not loaded"),
        (b"", "not loaded"),
        (b"\x80\x04]" + b"]" * 100_000, "not loaded"),
        (b"\xff", "not loaded"),
    ],
)
def test_metadata_names_nothing_but_its_own_parts(content: bytes, why: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / METADATA).write_bytes(content)
    with pytest.raises(Unrecoverable, match=why):
        files_of(tmp_path / METADATA)


@pytest.mark.parametrize(
    "name", ["../part", "/etc/passwd", "a/b", "..", "", ".metadata", "a\0b", 3]
)
# Also no names.
def test_metadata_refers_to_no_file_elsewhere(name: Any, tmp_path: Path) -> None:  # noqa: ANN401
    (tmp_path / METADATA).write_bytes(pickle.dumps(metadata_of([name])))
    with pytest.raises(Unrecoverable, match="which is no file's name"):
        files_of(tmp_path / METADATA)


def test_names_that_another_machine_has_made_up_do_not_count() -> None:
    made_up = [
        "saves/../part",
        "saves/x/y",
        "saves",
        "saves/0000000001-aa/..",
        f"saves/{'9' * 5000}-aa/part",
        "a/b/c/d",
    ]
    assert grouped(["saves/0000000001-aa/metadata", *made_up]) == {SaveName(1, "aa"): {METADATA}}
    sent = SimpleNamespace(
        names=lambda: ["turns/number/x", f"turns/number/{'9' * 5000}", "turns/number/3"]
    )
    others = SimpleNamespace(**vars(sent), addresses=(), holders=lambda _: [])
    assert gang.next_round(others, 0) == 3  # type: ignore[arg-type]


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
