"""`MachinePlatform`: the Python, processor and C library of a machine, which decide what compiled
packages run there; and those packages, with their requirements: as installed here, or as wheels of
a package index.

Wheels that run on a machine's platform are chosen by pip, and named by their SHA-256. pip reads the
index, and proxies and logins for it, from its own configuration on this computer.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import ipaddress
import json
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pricing_data.atomic_write import atomic_write
from spotctl.agent import layout
from spotctl.clouds.errors import Unusable

MIN_PYTHON = (3, 11)
PYTHONS = ((3, 11), (3, 12), (3, 13))
"""Versions that an image may have whose Python is not known."""

USUAL_PYTHON, USUAL_GLIBC = (3, 12), (2, 39)
"""The Python and C library of the images that spotctl chooses, all of them Ubuntu 24.04."""

OLDEST_GLIBC = (2, 35)
"""The C library of the oldest image that is supported, Ubuntu 22.04."""

_GLIBC = "glibc"
_OLDEST_TAGS = {"x86_64": 5, "aarch64": 17}
_OLD_NAMES = {(2, 5): "manylinux1", (2, 12): "manylinux2010", (2, 17): "manylinux2014"}


@dataclass(frozen=True, slots=True, order=True)
class MachinePlatform:
    """A Linux machine with CPython. `processor` is the kernel's name; `glibc` is (0, 0) with
    another C library.
    """

    python: tuple[int, int]
    processor: str
    glibc: tuple[int, int]

    def __str__(self) -> str:
        return f"Python {self.python[0]}.{self.python[1]} on {self.processor}"

    def runs_packages_of(self, other: MachinePlatform | None) -> bool:
        """Whether packages that are installed on the other run here."""
        return other is not None and (self.python, self.processor) == (
            other.python,
            other.processor,
        )

    @property
    def tags(self) -> tuple[str, ...]:
        """The platform tags of wheels (PEP 600) that run here, the newest first."""
        names: list[str] = []
        major, newest = self.glibc
        for minor in range(newest, _OLDEST_TAGS.get(self.processor, 17) - 1, -1):
            names.append(f"manylinux_{major}_{minor}")
            if (major, minor) in _OLD_NAMES:
                names.append(_OLD_NAMES[major, minor])
        return tuple(f"{name}_{self.processor}" for name in names)

    @property
    def pip_options(self) -> tuple[str, ...]:
        """The options with which pip chooses wheels for this platform, wherever pip runs."""
        version = f"{self.python[0]}.{self.python[1]}"
        abi = version.replace(".", "")
        # Without any platform, pip would choose for the one that it runs on.
        platforms = (f"--platform={tag}" for tag in self.tags or (f"linux_{self.processor}",))
        return ("--implementation=cp", f"--python-version={version}", f"--abi=cp{abi}", *platforms)

    @property
    def markers(self) -> dict[str, str]:
        """The values of environment markers (PEP 508); no extra is asked for."""
        version = f"{self.python[0]}.{self.python[1]}"
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{version}.0",
            "os_name": "posix",
            "platform_machine": self.processor,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{version}.0",
            "python_version": version,
            "sys_platform": "linux",
            "extra": "",
        }


def here() -> MachinePlatform | None:
    """This computer's platform; None if its packages run on no rented machine."""
    name, version = platform.libc_ver()
    if sys.platform != "linux" or platform.python_implementation() != "CPython" or name != _GLIBC:
        return None
    return MachinePlatform(
        (sys.version_info[0], sys.version_info[1]), platform.machine(), version_of(version)
    )


def markers_here() -> dict[str, str]:
    """The values of environment markers on this computer."""
    return {**{name: str(value) for name, value in default_environment().items()}, "extra": ""}


def version_of(text: str) -> tuple[int, int]:
    """The first two numbers of a version; zeros if the text is not one."""
    major, _, rest = text.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


MachinePython = tuple[str, MachinePlatform]
"""A Python that a machine has: its path, and its platform."""


def preferred(
    pythons: Sequence[MachinePython], own: MachinePlatform | None
) -> MachinePython | None:
    """The Python that runs our code: one that takes this computer's packages, else the first that
    is new enough, else the first."""
    new_enough = [python for python in pythons if python[1].python >= MIN_PYTHON]
    same = (python for python in new_enough if python[1].runs_packages_of(own))
    return next(same, next(iter(new_enough or pythons), None))


REPORT = """
import platform, sys
libc = platform.libc_ver()
print(*sys.version_info[:2], platform.machine(), libc[0] or "-", libc[1] or "-")
"""
"""A program that prints the platform of the Python that runs it."""

PROBE = f"""
if [ -r {layout.SEARCH_PATH} ]; then PATH=$(cat {layout.SEARCH_PATH}):$PATH; fi
for name in python3 {" ".join(f"python{major}.{minor}" for major, minor in reversed(PYTHONS))}; do
  path=$(command -v $name) || continue
  echo "python $path $($path -I -S -c {shlex.quote(REPORT)})"
done
"""
"""Shell commands that print a line for each Python of a machine."""


def pythons_in(lines: Sequence[str]) -> tuple[MachinePython, ...]:
    """The Pythons that the probe has printed."""
    reports = (line.split() for line in lines if line.startswith("python "))
    return tuple((path, platform_of(words)) for _, path, *words in reports if len(words) == 5)


def platform_of(reported: Sequence[str]) -> MachinePlatform:
    """The platform that a Python has reported in five words."""
    major, minor, processor, libc, version = reported
    return MachinePlatform(
        (int(major), int(minor)), processor, version_of(version) if libc == _GLIBC else (0, 0)
    )


_MAX_ROUNDS = 8
_PIP = (
    sys.executable,
    "-P",
    "-m",
    "pip",
    "--no-input",
    "--disable-pip-version-check",
    "--quiet",
    "--retries=1",
)
_ONLY_THESE = ("--no-deps", "--only-binary=:all:")
_MISSING = re.compile(r"No matching distribution found for (?P<wanted>\S+)")
_NO_ANSWER, _CHANGED = "connection broken", "DO NOT MATCH THE HASHES"


@dataclass(frozen=True, slots=True)
class Wheel:
    """A file of a package index."""

    name: str
    version: str
    url: str
    sha256: str

    @property
    def is_public(self) -> bool:
        """Whether another computer may reach its address. pip hides logins in addresses, so these
        are of no use.
        """
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        try:
            is_here = ipaddress.ip_address(host).is_loopback
        except ValueError:
            is_here = host in ("", "localhost")

        return parts.scheme in ("http", "https") and "@" not in parts.netloc and not is_here


def digest_of(wheels: Iterable[Wheel]) -> str:
    """The name of a folder with the content of these wheels."""
    return hashlib.sha256("\n".join(sorted(wheel.sha256 for wheel in wheels)).encode()).hexdigest()


def chosen_wheels(
    folder: Path, names: Sequence[str], platform: MachinePlatform
) -> tuple[Wheel, ...]:
    """The wheels of packages and their requirements, in the versions that are installed here; kept
    below `folder`.

    Unusable: the index has no such wheels, or does not answer.
    """
    installed = Closure(names, look_up_installed, platform.markers)
    text = f"{platform.python} {platform.processor} {platform.glibc} {' '.join(installed.pinned)}"
    known = folder / f"wheels-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    try:
        return tuple(Wheel(**fields) for fields in json.loads(known.read_text()))
    except FileNotFoundError:
        wheels = _choose(installed, names, platform)

    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with atomic_write(known) as new:
        new.write_text(json.dumps([asdict(wheel) for wheel in wheels]))
    return wheels


def download(wheels: Sequence[Wheel], platform: MachinePlatform, into: Path) -> list[Path]:
    """Downloads wheels to a folder. Unusable: the index does not have them any more."""
    lines = [f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}\n" for wheel in wheels]
    wanted = into / "wanted.txt"
    wanted.write_text("".join(lines))
    _run("download", platform, ("--require-hashes", f"--dest={into}", f"--requirement={wanted}"))
    return sorted(into.glob("*.whl"))


@dataclass(frozen=True, slots=True)
class KnownPackage:
    """A version of a package, and the requirements in its metadata."""

    version: str
    requires: tuple[str, ...] = ()


class Closure:
    """Packages and everything that they need: `known` versions, and requirements on packages that
    are `unknown`.

    The requirements of packages are followed as far as they are known: `seen`, or looked up. Extras
    are not followed.
    """

    def __init__(
        self,
        names: Iterable[str],
        look_up: Callable[[str], KnownPackage | None],
        markers: Mapping[str, str],
        seen: Mapping[str, KnownPackage] = {},
    ) -> None:
        self.known: dict[str, KnownPackage] = {}
        self.unknown: dict[str, str] = {}
        waiting = [Requirement(name) for name in names]
        while waiting:
            requirement = waiting.pop()
            name = canonicalize_name(requirement.name)
            if name in self.known or (
                requirement.marker is not None and not requirement.marker.evaluate(dict(markers))
            ):
                continue
            package = seen.get(name) or look_up(name)
            if package is None:
                self.unknown.setdefault(name, f"{name}{requirement.specifier}")
                continue
            self.known[name] = package
            waiting += [Requirement(text) for text in package.requires]

    @property
    def pinned(self) -> tuple[str, ...]:
        """Requirements on all of them, the known ones in these versions. A local version is on no
        index.
        """
        known = (
            f"{name}=={package.version.partition('+')[0]}" for name, package in self.known.items()
        )
        return tuple(sorted((*known, *self.unknown.values())))


@cache
def look_up_installed(name: str) -> KnownPackage | None:
    """The installed version of a package, if there is one."""
    try:
        distribution = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    return KnownPackage(distribution.version, tuple(distribution.requires or ()))


def _choose(
    installed: Closure, names: Sequence[str], platform: MachinePlatform
) -> tuple[Wheel, ...]:
    """Asks the index until it has told the requirements of everything that is needed."""
    needed, seen = installed, dict[str, KnownPackage]()
    for _ in range(_MAX_ROUNDS):
        with tempfile.TemporaryDirectory(prefix="spotctl-") as scratch:
            report = Path(scratch, "report.json")
            nowhere = ("--dry-run", "--ignore-installed", f"--target={scratch}/none")
            _run("install", platform, (*nowhere, f"--report={report}", *needed.pinned))
            rows: list[Mapping[str, Any]] = json.loads(report.read_text())["install"]

        offered: dict[str, Mapping[str, Any]] = {}
        for row in rows:
            name, about = canonicalize_name(row["metadata"]["name"]), row["metadata"]
            offered[name] = row["download_info"]
            seen[name] = KnownPackage(about["version"], tuple(about.get("requires_dist", ())))
        needed = Closure(names, look_up_installed, platform.markers, seen)
        if not needed.unknown and needed.known.keys() <= offered.keys():
            wheels = []
            for package in sorted(needed.known):
                # Only what is needed must have a hash.
                file = offered[package]
                sha256 = file["archive_info"]["hashes"]["sha256"]
                wheels.append(Wheel(package, seen[package].version, file["url"], sha256))
            return tuple(wheels)

    raise Unusable(f"cannot find out what {', '.join(names)} require on machines with {platform}")


def _run(command: str, platform: MachinePlatform, options: Sequence[str]) -> None:
    if find_spec("pip") is None:
        problem = (
            f"machines with {platform} need packages from an index, and this Python has no pip to "
            f"ask it: {sys.executable} -m ensurepip"
        )
        raise Unusable(problem)

    words = [*_PIP, command, *_ONLY_THESE, *platform.pip_options, *options]
    done = subprocess.run(
        words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0:
        raise Unusable(_refusal(done.stderr, platform))


def _refusal(said: str, platform: MachinePlatform) -> str:
    """One line for the words of a pip that has failed."""
    if _CHANGED in said:
        return (
            f"the package index now has other files for machines with {platform} than when they "
            "were chosen"
        )

    missing = _MISSING.search(said)
    if missing is None:
        last = said.strip().splitlines() or ["it gave no reason"]
        return (
            f"pip cannot find packages for machines with {platform}: "
            f"{last[-1].removeprefix('ERROR: ')}"
        )

    wanted = missing["wanted"]
    name = re.split(r"[<>=!~]", wanted)[0]
    if _NO_ANSWER in said:
        return (
            f"the package index, from which machines with {platform} get {wanted}, does not "
            "answer: correct pip's index"
            " (pip config list), or use an image with the Python of this computer"
        )

    return (
        f"the package index has no wheel of {wanted} for machines with {platform}: install another "
        f"version of {name} on this computer, or use another image"
    )
