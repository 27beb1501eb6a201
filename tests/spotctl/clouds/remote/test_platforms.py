"""The platforms of machines: which wheels run there, and which Python of a machine is taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from packaging.tags import Tag, cpython_tags

from spotctl.agent import layout
from spotctl.clouds.remote.platforms import (
    PROBE,
    MachinePlatform,
    here,
    platform_of,
    preferred,
    pythons_in,
)

UBUNTU_22, UBUNTU_24 = (MachinePlatform((3, 12), "x86_64", (2, minor)) for minor in (35, 39))
DEBIAN_13_ARM = MachinePlatform((3, 13), "aarch64", (2, 41))
LINES = [
    "ready",
    "bundles/*",
    "python /usr/bin/python3 3 10 x86_64 glibc 2.35",
    "python /usr/bin/python3.12 3 12 x86_64 glibc 2.35",
    "python /usr/bin/python3.11 3 11 x86_64 glibc 2.35",
]


@pytest.mark.parametrize(
    ("machine", "tag", "runs"),
    [
        (UBUNTU_24, "manylinux_2_39_x86_64", True),
        (UBUNTU_22, "manylinux_2_39_x86_64", False),
        (UBUNTU_22, "manylinux_2_28_x86_64", True),
        (UBUNTU_22, "manylinux2014_x86_64", True),
        (UBUNTU_22, "manylinux1_x86_64", True),
        (UBUNTU_22, "manylinux_2_28_aarch64", False),
        (DEBIAN_13_ARM, "manylinux2014_aarch64", True),
        (DEBIAN_13_ARM, "manylinux_2_5_aarch64", False),
        (DEBIAN_13_ARM, "macosx_11_0_arm64", False),
    ],
)
def test_a_machine_runs_wheels_for_its_c_library_and_older_ones(
    machine: MachinePlatform, tag: str, runs: bool
) -> None:
    assert (tag in machine.tags) is runs


def test_the_newest_tag_comes_first() -> None:
    assert UBUNTU_22.tags[:2] == ("manylinux_2_35_x86_64", "manylinux_2_34_x86_64")


def test_no_compiled_wheel_runs_with_another_c_library() -> None:
    assert platform_of(["3", "12", "x86_64", "-", "-"]).tags == ()


def test_the_tags_are_those_of_the_packaging_library_for_this_computer() -> None:
    own = here()
    assert own is not None
    ours = {
        Tag(f"cp{own.python[0]}{own.python[1]}", f"cp{own.python[0]}{own.python[1]}", tag)
        for tag in own.tags
    }
    assert ours <= set(cpython_tags())


def test_the_probe_reports_the_python_of_this_computer() -> None:
    said = subprocess.run(
        ["/bin/sh", "-c", PROBE.replace("for name in", f"for name in {sys.executable}")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert pythons_in(said.stdout.splitlines())[0][1] == here()


@pytest.mark.parametrize(
    ("lines", "own", "path"),
    [
        (LINES, None, "/usr/bin/python3.12"),
        (LINES, MachinePlatform((3, 11), "x86_64", (2, 31)), "/usr/bin/python3.11"),
        (LINES, MachinePlatform((3, 11), "aarch64", (2, 31)), "/usr/bin/python3.12"),
        (LINES[:3], None, "/usr/bin/python3"),
    ],
)
def test_the_python_that_takes_installed_packages_is_preferred_then_any_that_is_new_enough(
    lines: list[str], own: MachinePlatform | None, path: str
) -> None:
    chosen = preferred(pythons_in(lines), own)
    assert chosen is not None
    assert chosen[0] == path


def test_the_probe_succeeds_wherever_the_last_python_that_it_looks_for_is_missing(
    tmp_path: Path,
) -> None:
    """Only images with Python 3.11 ended it with status 0."""
    (tmp_path / "python3.13").symlink_to(sys.executable)
    words, path = ["/bin/sh", "-c", PROBE], {"PATH": str(tmp_path)}
    probe = subprocess.run(words, capture_output=True, text=True, env=path, check=False)
    assert (probe.returncode, len(pythons_in(probe.stdout.splitlines()))) == (0, 1)


def test_the_probe_finds_a_python_that_only_the_image_leads_to(tmp_path: Path) -> None:
    """No ssh session has the PATH of an image, such as /opt/conda/bin."""
    (tmp_path / "conda").mkdir()
    (tmp_path / "conda" / "python3").symlink_to(sys.executable)
    (tmp_path / "path").write_text(f"{tmp_path / 'conda'}:/bin\n")
    words = ["/bin/sh", "-c", PROBE.replace(layout.SEARCH_PATH, str(tmp_path / "path"))]
    probe = subprocess.run(
        words, capture_output=True, text=True, env={"PATH": "/nowhere:/bin"}, check=True
    )
    found = [path for path, _ in pythons_in(probe.stdout.splitlines())]
    assert str(tmp_path / "conda" / "python3") in found


def test_a_machine_without_python_has_none() -> None:
    assert preferred(pythons_in(["ready"]), None) is None


@pytest.mark.parametrize(
    "hidden", [("sys.platform", "darwin"), ("platform.libc_ver", lambda: ("", ""))]
)
def test_packages_of_a_computer_that_is_not_linux_run_on_no_machine(
    monkeypatch: pytest.MonkeyPatch, hidden: tuple[str, object]
) -> None:
    monkeypatch.setattr(*hidden)
    assert here() is None
    assert not UBUNTU_24.runs_packages_of(here())
