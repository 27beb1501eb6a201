"""A channel of conda's packages, which tests make in a folder, and the wheel of an installed package."""

from __future__ import annotations

import json
import subprocess
import zipfile
from importlib.metadata import distribution
from pathlib import Path


def channel(folder: Path, name: str, version: str = "1.0") -> None:
    """Makes a channel with a package that has one program, as conda builds it, which tells its
    version."""
    packed, noarch = folder / "packed", folder / "noarch"
    for made in (noarch, packed / "info", packed / "bin"):
        made.mkdir(parents=True)
    program = packed / "bin" / name
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    about = {"name": name, "version": version, "build": "0", "build_number": 0, "depends": [],
             "subdir": "noarch"}  # fmt: skip
    (packed / "info" / "index.json").write_text(json.dumps(about))
    paths = {"paths": [{"_path": f"bin/{name}", "path_type": "hardlink"}], "paths_version": 1}
    (packed / "info" / "paths.json").write_text(json.dumps(paths))
    (packed / "info" / "files").write_text(f"bin/{name}\n")
    archive = noarch / f"{name}-{version}-0.tar.bz2"
    subprocess.run(["tar", "-cjf", archive, "-C", packed, "info", "bin"], check=True)
    listed = {**about, "size": archive.stat().st_size}
    repodata = {"info": {"subdir": "noarch"}, "packages": {archive.name: listed},
                "packages.conda": {}, "repodata_version": 1}  # fmt: skip
    (noarch / "repodata.json").write_text(json.dumps(repodata))


def wheel_of_installed(folder: Path, name: str) -> None:
    """Packs an installed package again, for machines without a package index."""
    installed = distribution(name)
    about = installed.read_text("WHEEL") or ""
    tag = next(line.partition(": ")[2] for line in about.splitlines() if line.startswith("Tag"))
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name.replace('-', '_')}-{installed.version}-{tag}.whl"
    with zipfile.ZipFile(target, "w") as archive:
        for file in installed.files or ():
            if ".." not in file.parts and file.suffix != ".pyc":
                archive.write(str(file.locate()), str(file))
