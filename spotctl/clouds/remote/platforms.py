"""`MachinePlatform`: the Python, processor and C library of a machine, which decide what compiled
packages run there.

Pure, apart from what it says of this computer.
"""

from __future__ import annotations

import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from packaging.markers import default_environment

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


@dataclass(frozen=True, slots=True)
class MachinePython:
    """A Python that a machine has."""

    path: str
    platform: MachinePlatform


def preferred(
    pythons: Sequence[MachinePython], own: MachinePlatform | None
) -> MachinePython | None:
    """The Python that runs our code: one that takes this computer's packages, else the first that
    is new enough, else the first."""
    new_enough = [python for python in pythons if python.platform.python >= MIN_PYTHON]
    same = (python for python in new_enough if python.platform.runs_packages_of(own))
    return next(same, next(iter(new_enough or pythons), None))


REPORT = """
import platform, sys
libc = platform.libc_ver()
print(*sys.version_info[:2], platform.machine(), libc[0] or "-", libc[1] or "-")
"""
"""A program that prints the platform of the Python that runs it."""

PROBE = f"""
for name in python3 {" ".join(f"python{major}.{minor}" for major, minor in reversed(PYTHONS))}; do
  path=$(command -v $name) || continue
  echo "python $path $($path -I -S -c {shlex.quote(REPORT)})"
done
"""
"""Shell commands that print a line for each Python of a machine."""


def pythons_in(lines: Sequence[str]) -> tuple[MachinePython, ...]:
    """The Pythons that the probe has printed."""
    reports = (line.split() for line in lines if line.startswith("python "))
    return tuple(
        MachinePython(path, platform_of(words)) for _, path, *words in reports if len(words) == 5
    )


def platform_of(reported: Sequence[str]) -> MachinePlatform:
    """The platform that a Python has reported in five words."""
    major, minor, processor, libc, version = reported
    return MachinePlatform(
        (int(major), int(minor)), processor, version_of(version) if libc == _GLIBC else (0, 0)
    )
