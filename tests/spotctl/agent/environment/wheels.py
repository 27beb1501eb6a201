"""Packages that tests make, in a folder that uv and pip read as an index."""

from __future__ import annotations

import zipfile
from pathlib import Path

PROJECT = '[project]\nname = "mine"\nversion = "0.1"\ndependencies = ["spotone"]\nrequires-python = ">=3.11"\n'
"""A project that needs one package."""

LOCK = """\
version = 1
revision = 3
requires-python = ">=3.11"

[[package]]
name = "spotone"
version = "1.0"
source = {{ registry = "{index}" }}
wheels = [{{ path = "spotone-1.0-py3-none-any.whl" }}]

[[package]]
name = "mine"
version = "0.1"
source = {{ virtual = "." }}
dependencies = [{{ name = "spotone" }}]
"""
"""Its lock, with a place for the `index`."""


def wheel(folder: Path, name: str, version: str = "1.0", needs: str = "") -> None:
    """Makes a package with a module and a program of its name, which tell its version."""
    info = f"{name}-{version}.dist-info"
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    files = {
        f"{name}.py": f"version = {version!r}\n\n\ndef main():\n    print(version)\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    listed = "".join(f"{path},,\n" for path in (*files, f"{info}/RECORD"))
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in {**files, f"{info}/RECORD": listed}.items():
            archive.writestr(path, text)
