"""Debian roots that are not this computer's, for machines of simulated clouds: `make debian` makes
and uses them.

A release gets the packages of a cloud image that runs of spotctl need, cloud-init among them, and
next to it a folder with wheels for its Python: what a package index would have. That needs root,
debootstrap, qemu-user-static, and Debian's and Python's registries as this computer is set up for
them; the tests that use a root need no registry.

The kernel starts programs of its own processor only. So a release for another one is no whole root:
it is a Python with its C library, and an emulator that runs it, for the image of machines that
otherwise have this computer's programs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from spotctl.clouds.remote.platforms import (
    OLDEST_GLIBC,
    PYTHONS,
    Closure,
    MachinePlatform,
    look_up_installed,
)
from spotctl.files.job.spec import Notify
from spotctl.run.remote_runner.installing import packages_on
from spotctl.run.work.training_workload import NODE_PACKAGES

ROOTS, RELEASE = "SPOTCTL_TEST_ROOTS", "SPOTCTL_TEST_RELEASE"
"""Name the folder with the roots, and the release that the machines of all simulated clouds
have."""

_PACKAGES = ("ca-certificates", "cloud-init", "iproute2", "openssh-server", "procps", "python3")
_NO_DAEMONS = "#!/bin/sh\nexit 101\n"
_LIBRARIES, _LOADER = "usr/lib/aarch64-linux-gnu", "usr/lib/ld-linux-aarch64.so.1"
_EMULATOR = "usr/bin/qemu-aarch64-static"
_EMULATED = f"""\
#!/bin/sh
# Python for ARM machines, on the processor of Google Cloud's T2A. $0 is what it takes for its own path.
exec /{_EMULATOR} -cpu neoverse-n1 -0 "$0" /{_LIBRARIES}/python "$@"
"""


@dataclass(frozen=True)
class Release:
    """A release of Debian, by its name and number, and its Python; its files are `root`, its wheels
    in `wheels`.
    """

    name: str
    number: int
    python: tuple[int, int]
    is_arm: bool = False

    @property
    def root(self) -> Path:
        return _folder() / (f"{self.name}-arm64" if self.is_arm else self.name)

    @property
    def wheels(self) -> Path:
        return self.root.with_name(f"{self.root.name}-wheels")

    @property
    def platform(self) -> MachinePlatform:
        """The platform for which its wheels are chosen: before a launch rents anything, the C
        library is not known.
        """
        return MachinePlatform(self.python, "aarch64" if self.is_arm else "x86_64", OLDEST_GLIBC)


def _folder() -> Path:
    return Path(os.environ.get(ROOTS, "build/roots")).absolute()


RELEASES = (Release("trixie", 13, (3, 13)),)
ARM = Release("trixie", 13, (3, 13), is_arm=True)


def release_of_all() -> Release | None:
    """The release that the machines of all simulated clouds have; None if they have this
    computer's.
    """
    chosen = os.environ.get(RELEASE, "")
    return next(release for release in RELEASES if release.name == chosen) if chosen else None


def build(release: Release) -> None:
    """Makes the root of a release, and fetches its wheels; does nothing if both are there."""
    release.root.parent.mkdir(parents=True, exist_ok=True)
    for made, make in (
        (release.root, _make_arm if release.is_arm else _make_root),
        (release.wheels, _fetch_wheels),
    ):
        if not made.exists():
            part = made.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            make(release, part)
            part.rename(made)


def _make_root(release: Release, part: Path) -> None:
    _run("debootstrap", "--variant=minbase", release.name, part)
    (part / "usr/sbin/policy-rc.d").write_text(_NO_DAEMONS)
    (part / "usr/sbin/policy-rc.d").chmod(0o755)
    # debootstrap itself does not resolve dependencies on versions of virtual packages.
    with _proc(part):
        _run("chroot", part, "apt-get", "update", "-q")
        _run("chroot", part, "apt-get", "install", "-yq", "--no-install-recommends", *_PACKAGES)
    (part / "usr/sbin/policy-rc.d").unlink()


def _make_arm(release: Release, part: Path) -> None:
    """Unpacks Debian's packages without running any, and keeps what Python needs."""
    if not Path(f"/{_EMULATOR}").exists():
        sys.exit("a Python for ARM machines needs Debian's qemu-user-static")
    with TemporaryDirectory(dir=part.parent) as scratch:
        fetched, unpacked = Path(scratch, "fetched"), Path(scratch, "unpacked")
        options = ("--arch=arm64", "--foreign", "--variant=minbase", "--include=python3")
        _run("debootstrap", *options, release.name, fetched)
        unpacked.mkdir()
        for package in sorted((fetched / "var/cache/apt/archives").glob("*.deb")):
            _run("dpkg-deb", "--extract", package, unpacked)
        python = "python{}.{}".format(*release.python)
        for folder in (_LIBRARIES, f"usr/lib/{python}"):
            shutil.copytree(unpacked / folder, part / folder, symlinks=True)
        shutil.copy2(unpacked / _LOADER, part / _LOADER, follow_symlinks=False)
        shutil.copy2(unpacked / "usr/bin" / python, part / _LIBRARIES / "python")
    (part / "usr/bin").mkdir()
    shutil.copy2(f"/{_EMULATOR}", part / _EMULATOR)
    (part / "usr/bin" / python).write_text(_EMULATED)
    (part / "usr/bin" / python).chmod(0o755)
    # Those that this computer has are hidden.
    for name in {"python3", *(f"python{major}.{minor}" for major, minor in PYTHONS)} - {python}:
        (part / "usr/bin" / name).symlink_to(python)
    _compile(part, python)


def _compile(part: Path, python: str) -> None:
    """Makes bytecode, as Debian does when it installs a Python; an emulated start takes three times
    as long without.
    """
    libraries = part / _LIBRARIES
    started = (part / _EMULATOR, part / _LOADER, "--library-path", libraries, libraries / "python")
    words = ("-S", "-m", "compileall", "-qq", "-s", part, "-p", "/", part / "usr/lib" / python)
    # Some files of the library's own tests are no Python, and it fails for them.
    environment = {**os.environ, "PYTHONHOME": str(part / "usr")}
    subprocess.run([*map(str, (*started, *words))], check=False, env=environment)


def _fetch_wheels(release: Release, part: Path) -> None:
    names = {
        *NODE_PACKAGES,
        *(name for cloud in ("aws", "azure", "gcp") for name in packages_on(cloud, Notify())),
    }
    pins = Closure(sorted(names), look_up_installed, release.platform.markers).pinned
    options = ("--only-binary=:all:", "--no-deps", *release.platform.pip_options)
    _run(sys.executable, "-m", "pip", "download", *options, "--dest", part, *pins)


@contextmanager
def _proc(root: Path) -> Iterator[None]:
    _run("mount", "-t", "proc", "proc", root / "proc")
    try:
        yield
    finally:
        _run("umount", root / "proc")


def _run(*words: str | Path) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    subprocess.run([*map(str, words)], check=True, env=environment)


if __name__ == "__main__":
    for each in (*RELEASES, ARM):
        build(each)
