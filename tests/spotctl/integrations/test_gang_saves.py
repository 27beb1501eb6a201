"""Saves that are spread over the machines of a gang."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agileml.errors import AgileMLError, Unrecoverable
from spotctl.agent.data.transfer import listing
from spotctl.integrations import gang
from spotctl.integrations.gang_saves import (
    METADATA,
    SaveName,
    files_of,
    grouped,
)
from tests.spotctl.integrations.conftest import Three
from tests.spotctl.integrations.test_gang import Planted, metadata_of, written


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
