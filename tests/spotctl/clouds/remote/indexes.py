"""Small wheels in a folder that pip takes as its package index."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest


def use_index(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """pip finds packages in this folder, and nowhere else."""
    for name, value in index_variables(folder).items():
        monkeypatch.setenv(name, value)


def index_variables(folder: Path) -> dict[str, str]:
    return {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}


def add_wheel(
    folder: Path,
    name: str,
    version: str,
    tag: str = "py3-none-any",
    requires: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
) -> Path:
    """Builds a wheel with one module, or with these files."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    needed = "".join(f"Requires-Dist: {text}\n" for text in requires)
    content = {
        **(files if files is not None else {f"{module}.py": b"x = 1\n"}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
    }
    lines = [f"{path},sha256={_hash(data)},{len(data)}" for path, data in content.items()]
    folder.mkdir(exist_ok=True)
    wheel = folder / f"{module}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path, data in {**content, f"{info}/RECORD": "\n".join(lines).encode()}.items():
            archive.writestr(path, data)
    return wheel


def add_installed(folder: Path, name: str, tag: str) -> None:
    """Builds a wheel from an installed package, as if it were for another platform."""
    distribution = importlib.metadata.distribution(name)
    files = {
        file.as_posix(): Path(str(distribution.locate_file(file))).read_bytes()
        for file in distribution.files or ()
        if not file.as_posix().startswith("..")
        and ".dist-info/" not in file.as_posix()
        and file.suffix != ".pyc"
    }
    add_wheel(folder, name, distribution.version, tag, tuple(distribution.requires or ()), files)


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
