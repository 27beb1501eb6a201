"""The packages that machines need, with their requirements: as installed here, or as wheels of a
package index.

Wheels that run on a machine's platform are chosen by pip, and named by their SHA-256.

pip reads the index, and proxies and logins for it, from its own configuration on this computer.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import ipaddress
import json
import re
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

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pricing_data.atomic_write import atomic_write
from spotctl.clouds.errors import Unusable
from spotctl.clouds.remote.platforms import MachinePlatform

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
    installed = closure(names, look_up_installed, platform.markers)
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


@dataclass(frozen=True, slots=True)
class Closure:
    """Packages and everything that they need: versions that are known, and requirements on packages
    that are not.
    """

    known: Mapping[str, KnownPackage]
    unknown: Mapping[str, str]

    @property
    def pinned(self) -> tuple[str, ...]:
        """Requirements on all of them, the known ones in these versions. A local version is on no
        index.
        """
        known = (
            f"{name}=={package.version.partition('+')[0]}" for name, package in self.known.items()
        )
        return tuple(sorted((*known, *self.unknown.values())))


def closure(
    names: Iterable[str],
    look_up: Callable[[str], KnownPackage | None],
    markers: Mapping[str, str],
    seen: Mapping[str, KnownPackage] = {},
) -> Closure:
    """Follows the requirements of packages as far as they are known: `seen`, or looked up. Extras
    are not followed.
    """
    known: dict[str, KnownPackage] = {}
    unknown: dict[str, str] = {}
    waiting = [Requirement(name) for name in names]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in known or (
            requirement.marker is not None and not requirement.marker.evaluate(dict(markers))
        ):
            continue
        package = seen.get(name) or look_up(name)
        if package is None:
            unknown.setdefault(name, f"{name}{requirement.specifier}")
            continue
        known[name] = package
        waiting += [Requirement(text) for text in package.requires]

    return Closure(known, unknown)


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
        needed = closure(names, look_up_installed, platform.markers, seen)
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
