"""Debian roots that are not this computer's, for machines of simulated clouds: `make debian` makes and uses them.

A release gets the packages of a cloud image that runs of spotctl need, cloud-init among them, and next to it a folder
with wheels for its Python: what a package index would have. That needs root, debootstrap, and Debian's and Python's
registries as this computer is set up for them; the tests that use a root need no registry.
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

from spotctl.clouds.remote.platforms import markers_here
from spotctl.clouds.remote.requirements import closure
from spotctl.clouds.remote.wheels import look_up_installed
from spotctl.run.elsewhere.installing import packages_on
from spotctl.run.work.training_workload import NODE_PACKAGES

ROOTS, RELEASE = "SPOTCTL_TEST_ROOTS", "SPOTCTL_TEST_RELEASE"
"""Name the folder with the roots, and the release that the machines of all simulated clouds have."""

_PACKAGES = ("ca-certificates", "cloud-init", "iproute2", "openssh-server", "procps", "python3")
_NO_DAEMONS = "#!/bin/sh\nexit 101\n"


@dataclass(frozen=True)
class Release:
    """A release of Debian, by its name and number, and its Python; its files are `root`, its wheels in `wheels`."""

    name: str
    number: int
    python: str

    @property
    def root(self) -> Path:
        return _folder() / self.name

    @property
    def wheels(self) -> Path:
        return _folder() / f"{self.name}-wheels"


def _folder() -> Path:
    return Path(os.environ.get(ROOTS, "bench/out/roots")).absolute()


RELEASES = (Release("trixie", 13, "3.13"),)


def release_of_all() -> Release | None:
    """The release that the machines of all simulated clouds have; None if they have this computer's."""
    chosen = os.environ.get(RELEASE, "")
    return next(release for release in RELEASES if release.name == chosen) if chosen else None


def build(release: Release) -> None:
    """Makes the root of a release, and fetches its wheels; does nothing if both are there."""
    release.root.parent.mkdir(parents=True, exist_ok=True)
    part = release.root.with_suffix(".part")
    if not release.root.exists():
        shutil.rmtree(part, ignore_errors=True)
        _run("debootstrap", "--variant=minbase", release.name, part)
        (part / "usr/sbin/policy-rc.d").write_text(_NO_DAEMONS)
        (part / "usr/sbin/policy-rc.d").chmod(0o755)
        # debootstrap itself does not resolve dependencies on versions of virtual packages.
        with _proc(part):
            _run("chroot", part, "apt-get", "update", "-q")
            _run("chroot", part, "apt-get", "install", "-yq", "--no-install-recommends", *_PACKAGES)
        (part / "usr/sbin/policy-rc.d").unlink()
        part.rename(release.root)
    if not release.wheels.exists():
        fetched = release.wheels.with_suffix(".part")
        names = {*NODE_PACKAGES, *(name for cloud in ("aws", "azure", "gcp") for name in packages_on(cloud))}
        known = closure(sorted(names), look_up_installed, markers_here()).known
        pins = [f"{name}=={package.version}" for name, package in known.items()]
        platform = ("--python-version", release.python, "--platform", "manylinux_2_28_x86_64")
        older = ("--platform", "manylinux_2_17_x86_64", "--platform", "manylinux2014_x86_64")
        options = ("--only-binary=:all:", "--no-deps", *platform, *older, "--dest", fetched)
        _run(sys.executable, "-m", "pip", "download", *options, *pins)
        fetched.rename(release.wheels)


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
    for each in RELEASES:
        build(each)
