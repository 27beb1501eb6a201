"""The archives that a launcher copies to a machine so that it can run our code, named by their
SHA-256.

- A wheel with `spotctl.agent` and `agileml`, made from the modules that run here, however they were
  installed.
- The packages that a payload imports, with their requirements. Packages contain machine code: for
  machines with the Python version and processor of this computer as they are installed here, for
  others from wheels of a package index. Files that machines do not load are left out.

Both are zip files with fixed dates and order, so that the same content gives the same archive.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import io
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from importlib import import_module
from pathlib import Path

import agileml
import bidbrain
import pricing_data
from pricing_data.atomic_write import atomic_write
from spotctl.agent.cloud_parts import GROUP, MACHINE, STORAGE, cloud_packages, cloud_part
from spotctl.agent.data.wheel_files import place_of
from spotctl.agent.environment.built import UV, installed_uv
from spotctl.clouds.errors import ProviderError
from spotctl.clouds.remote.platforms import (
    Closure,
    MachinePlatform,
    Wheel,
    chosen_wheels,
    digest_of,
    download,
    here,
    look_up_installed,
    markers_here,
)
from spotctl.home.paths import PACKAGE

_COMPRESSION_LEVEL = 1
"""The fastest level: a third of the usual time, for archives that are a few percent larger."""

_STORED_SUFFIXES = (".gz", ".parquet")

_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Archive:
    """A zip file; `digest` is its SHA-256 in hexadecimal digits."""

    digest: str
    path: Path


@dataclass(frozen=True, slots=True)
class Packages:
    """The packages for machines of one platform, in a folder named by `digest`.

    `wheels` are files of an index with the same content, empty where it is packed from what is
    installed here.
    """

    digest: str
    wheels: tuple[Wheel, ...]
    pack: Callable[[], Archive]


def code_wheel(folder: Path) -> Archive:
    """Our own code for machines, as a wheel below `folder`."""
    files = {"spotctl/__init__.py": (PACKAGE / "__init__.py").read_bytes()}
    for room in ("agent", "integrations"):
        files |= _tree(PACKAGE / room, f"spotctl/{room}")
    # The modules of clouds that the agent imports, with the packages around them.
    for cloud, package in cloud_packages().items():
        named = (cloud_part(cloud, name) for name in (MACHINE, STORAGE))
        parts = [part for part in named if part is not None]
        # A package around them is imported, too; what it imports is not on the machine.
        outer = [package.rsplit(".", above)[0] for above in range(package.count(".") + 1)]
        around = [import_module(name) for name in outer if name != "spotctl"] if parts else []
        for module in (*parts, *around):
            path = Path(str(module.__file__))
            suffix = "/__init__.py" if path.name == "__init__.py" else ".py"
            files[module.__name__.replace(".", "/") + suffix] = path.read_bytes()

    files |= _tree(Path(agileml.__file__).parent, "agileml")
    return _wheel(folder, files)


def whole_wheel(folder: Path) -> Archive:
    """All of spotctl, for a machine that does the launcher's work."""
    packages = {
        package.__name__: Path(str(package.__file__)).parent
        for package in (agileml, bidbrain, pricing_data)
    }
    packages["spotctl"] = PACKAGE

    # Clouds may come in packages of their own.
    for name in {package.partition(".")[0] for package in cloud_packages().values()} - {"spotctl"}:
        packages[name] = Path(str(import_module(name).__file__)).parent
    files: dict[str, bytes] = {}
    for name, path in packages.items():
        files |= _tree(path, name)

    return _wheel(folder, files)


def _wheel(folder: Path, sources: Mapping[str, bytes]) -> Archive:
    version = importlib.metadata.version("spotctl")
    files = dict(sources)
    info = f"spotctl-{version}.dist-info"
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: spotctl\nVersion: {version}\n".encode()
    )
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: spotctl\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )

    # The clouds, so that they are known on a machine, too.
    clouds = (
        f"{entry.name} = {entry.value}" for entry in importlib.metadata.entry_points(group=GROUP)
    )
    files[f"{info}/entry_points.txt"] = "\n".join([f"[{GROUP}]", *sorted(clouds), ""]).encode()
    record: list[str] = []
    for name, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{name},sha256={digest},{len(content)}")

    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    return _store(folder, files)


def packages_for(folder: Path, names: Sequence[str], machine: MachinePlatform) -> Packages:
    """Packages and their requirements for machines of a platform; what is packed is kept below
    `folder`.

    ProviderError: one is not installed here. Unusable: the package index has none for this
    platform.
    """
    is_here = UV not in names or installed_uv(os.environ) is not None
    if machine.runs_packages_of(here()) and is_here:
        archive = packages_archive(folder, names)
        return Packages(archive.digest, (), lambda: archive)
    wheels = chosen_wheels(folder, names, machine)
    pack = partial(_wheels_archive, folder, wheels, machine)
    return Packages(digest_of(wheels), wheels, pack)


def packages_archive(folder: Path, names: Iterable[str]) -> Archive:
    """Installed packages and their requirements in a zip file below `folder`. ProviderError: one is
    not installed.

    Packing takes seconds, so an archive is kept for as long as the same versions are installed.
    """
    wanted = set(names)
    # A program, which runs wherever the processor is the same.
    program = installed_uv(os.environ) if UV in wanted else None
    uv = None if program is None else Path(program).resolve()
    distributions = with_requirements(sorted(wanted - {UV}))
    versions = ",".join(
        f"{name}=={distribution.version}" for name, distribution in sorted(distributions.items())
    )

    if uv is not None:
        versions += f",{uv} {uv.stat().st_mtime_ns}"
    note, kept = _kept(folder, f"{here()} {versions} {sys.prefix}")
    if kept is not None:
        return kept

    files = {name: path.read_bytes() for name, path in files_of(distributions.values())}
    if uv is not None:
        files[f"bin/{UV}"] = uv.read_bytes()
    return _store(folder, files, note)


def _wheels_archive(folder: Path, wheels: Sequence[Wheel], machine: MachinePlatform) -> Archive:
    """The files of wheels that machines load, in a zip file below `folder`."""
    note, kept = _kept(folder, digest_of(wheels))
    if kept is not None:
        return kept

    loaded = {}
    with tempfile.TemporaryDirectory(prefix="spotctl-") as scratch:
        for path in download(wheels, machine, Path(scratch)):
            with zipfile.ZipFile(path) as archive:
                names = {name for name in archive.namelist() if not name.endswith("/")}
                for name in names:
                    place = place_of(name)
                    if place is not None and not is_left_out(name, names):
                        loaded[place] = archive.read(name)

    return _store(folder, loaded, note)


def _kept(folder: Path, content: str) -> tuple[Path, Archive | None]:
    """The note of the archive with some content, and the archive, if it was packed before and is
    still there.
    """
    key = hashlib.sha256(f"{content} {RULES}".encode()).hexdigest()[:16]
    note = folder / f"packages-{key}"
    digest = note.read_text().strip() if note.exists() else ""
    packed = folder / f"{digest}.zip"
    return note, Archive(digest, packed) if digest and packed.exists() else None


def _tree(folder: Path, name: str) -> dict[str, bytes]:
    """The files of a package, by their names in a wheel."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            place = path.relative_to(folder).as_posix()
            files[f"{name}/{place}"] = path.read_bytes()
    return files


def with_requirements(names: Iterable[str]) -> dict[str, importlib.metadata.Distribution]:
    """Installed packages and their requirements, by name. ProviderError: one is not installed."""
    needed = Closure(names, look_up_installed, markers_here())
    if missing := next(iter(needed.unknown), ""):
        problem = f"{missing} is not installed here, and machines need it: pip install {missing}"
        raise ProviderError(problem)
    return {name: importlib.metadata.distribution(name) for name in needed.known}


def files_of(
    distributions: Iterable[importlib.metadata.Distribution],
) -> Iterator[tuple[str, Path]]:
    """The files of distributions, below their site folder, that machines load."""
    for distribution in distributions:
        if not distribution.files:
            name = distribution.metadata["Name"]
            problem = f"{name} is installed without a list of its files: install it again with pip"
            raise ProviderError(problem)
        names = {
            file.as_posix() for file in distribution.files if not file.parts[0].startswith("..")
        }
        for name in names:
            path = Path(str(distribution.locate_file(name)))
            if not is_left_out(name, names) and path.is_file():
                yield name, path


def _store(folder: Path, files: Mapping[str, bytes], note: Path | None = None) -> Archive:
    """A zip file of these files below a folder, named by its digest, which is written to a `note`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(
        buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=_COMPRESSION_LEVEL
    ) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _DATE)
            kind = zipfile.ZIP_STORED if name.endswith(_STORED_SUFFIXES) else zipfile.ZIP_DEFLATED
            entry.compress_type, entry.external_attr, entry.create_system = kind, 0o644 << 16, 3
            archive.writestr(entry, files[name])

    content = buffer.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    path = folder / f"{digest}.zip"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with atomic_write(path) as new:
            new.write_bytes(content)

    if note is not None:
        with atomic_write(note) as new:
            new.write_text(digest)
    return Archive(digest, path)


_PATTERNS = (
    *("*.pyc", "*.pyi", "*.pyx", "*.pxd", "*.a", "*.h", "*.hpp"),
    # RPC, and an object store for which machines have obstore.
    *("pyarrow/*flight*", "pyarrow/libarrow_s3.*", "pyarrow/_s3fs.*"),
    *("pyarrow/_pyarrow_cpp_tests.*", "pyarrow/src/*"),
)

_SERVICES = (
    "ec2",
    "iam",
    "kms",
    "pricing",
    "s3",
    "service-quotas",
    "sso",
    "sso-oidc",
    "ssm",
    "sts",
)
"""The services of AWS that spotctl or the SDK's sign-in uses; the SDK has a folder for each
service."""

RULES = " ".join((*_PATTERNS, *_SERVICES))
"""The rules as part of an archive's key: other rules make other archives."""

_SERVICE = re.compile(r"botocore/data/([^/]+)/.+")
_LIBRARY = re.compile(r"(?P<name>.+\.so)(\.\d+){0,3}")


def is_left_out(name: str, names: Collection[str]) -> bool:
    """Whether a file is not sent; `names` are all files of its package."""
    if "tests" in name.split("/") or any(fnmatchcase(name, pattern) for pattern in _PATTERNS):
        return True
    service, library = _SERVICE.fullmatch(name), _LIBRARY.fullmatch(name)
    if service is not None and service[1] not in _SERVICES:
        return True
    if library is None:
        return False

    # Of the copies of a library, only lib.so.MAJOR is loaded.
    loaded = re.compile(re.escape(library["name"]) + r"\.\d+")
    return loaded.fullmatch(name) is None and any(loaded.fullmatch(other) for other in names)
