"""A machine fetches wheels from a package index by itself."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spotctl.agent import layout
from spotctl.agent.data import wheel_files
from tests.servers.loopback import Reply, Request, serving
from tests.spotctl.clouds.remote.indexes import add_wheel


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "root"
    for name in ("incoming", "bundles"):
        (root / name).mkdir(parents=True)
    monkeypatch.setattr(layout, "ROOT", str(root))
    monkeypatch.setattr(layout, "BUNDLES", str(root / "bundles"))
    return root


@pytest.fixture
def wheel(tmp_path: Path) -> bytes:
    files = {
        "maths/__init__.py": b"",
        "maths-1.0.data/purelib/extra.py": b"x = 2",
        "maths-1.0.data/scripts/run": b"",
    }
    return add_wheel(tmp_path / "index", "maths", "1.0", files=files).read_bytes()


def brought(
    monkeypatch: pytest.MonkeyPatch, wheels: list[Any], answer: Callable[[Request], Reply]
) -> int:
    with serving(SimpleNamespace(answer=answer)) as server:
        given = {
            "name": "abc",
            "wheels": [(f"{server.url}/{name}", digest) for name, digest in wheels],
        }
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(given)))
        return wheel_files.main()


def test_wheels_are_fetched_and_unpacked_under_the_name_of_their_content(
    root: Path, wheel: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        brought(
            monkeypatch, [("maths.whl", sha256(wheel).hexdigest())], lambda _: Reply(200, wheel)
        )
        == 0
    )
    folder = root / "bundles" / "abc"
    paths = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {path for path in paths if "dist-info" not in path} == {
        "maths/__init__.py",
        "bin/run",
        "extra.py",
    }
    assert not list((root / "incoming").iterdir())


@pytest.mark.parametrize(
    ("answer", "message"),
    [(Reply(404), "404"), (Reply(200, b"other"), "is not the file that was chosen")],
)
def test_what_does_not_arrive_whole_leaves_nothing(
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: Reply,
    message: str,
) -> None:
    assert brought(monkeypatch, [("maths.whl", "0" * 64)], lambda _: answer) == 1
    assert message in capsys.readouterr().err
    assert not list((root / "bundles").iterdir())
    assert not list((root / "incoming").iterdir())


def test_packages_that_are_there_stay(
    root: Path, wheel: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "bundles" / "abc").mkdir()
    assert (
        brought(
            monkeypatch, [("maths.whl", sha256(wheel).hexdigest())], lambda _: Reply(200, wheel)
        )
        == 0
    )
    assert not list((root / "bundles" / "abc").iterdir())
