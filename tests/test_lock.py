"""The lock files have exact versions within the bounds of pyproject.toml, with hashes, and name no
address.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PRODUCT = [*PROJECT["project"]["dependencies"], *PROJECT["build-system"]["requires"]]
LOCKS = {
    "requirements.lock": PRODUCT,
    "requirements-test.lock": [*PRODUCT, *PROJECT["project"]["optional-dependencies"]["test"]],
}
PYTHONS = ("3.11.0", "3.12.0", "3.13.0")
MACHINES = (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))


def text(lock: str) -> str:
    return (ROOT / lock).read_text(encoding="utf-8")


def entries(lock: str) -> list[tuple[Requirement, list[str]]]:
    """Each locked version, with its hashes."""
    lines = re.sub(r"^#.*\n", "", text(lock), flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    parts = [re.split(r"\s+--hash=", line) for line in lines if line.strip()]
    return [(Requirement(version), [one.strip() for one in hashes]) for version, *hashes in parts]


@pytest.mark.parametrize("lock", LOCKS)
def test_each_version_is_exact_and_has_hashes_and_no_address(lock: str) -> None:
    assert "://" not in text(lock)
    assert "index-url" not in text(lock)
    for version, hashes in entries(lock):
        assert [one.operator for one in version.specifier] == ["=="], version
        assert hashes, version
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes), version


@pytest.mark.parametrize("lock", LOCKS)
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("platform", "processor"), MACHINES)
def test_each_dependency_is_locked_within_its_bounds(
    lock: str, python: str, platform: str, processor: str
) -> None:
    computer = {
        "python_full_version": python,
        "python_version": python.rpartition(".")[0],
        "sys_platform": platform,
        "platform_machine": processor,
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }
    locked = dict[str, str]()
    for version, _ in entries(lock):
        if version.marker is None or version.marker.evaluate(computer):
            assert canonicalize_name(version.name) not in locked, f"{version.name} is locked twice"
            locked[canonicalize_name(version.name)] = next(iter(version.specifier)).version
    for line in LOCKS[lock]:
        needed = Requirement(line)
        if needed.name != "torch":  # its builds differ by what hardware a computer has
            name = canonicalize_name(needed.name)
            assert locked[name] in needed.specifier, (
                f"{line}: {locked[name]} is locked; run make lock"
            )


def test_users_get_the_versions_that_are_tested() -> None:
    tested = [
        (one.name, one.specifier, hashes) for one, hashes in entries("requirements-test.lock")
    ]
    for version, hashes in entries("requirements.lock"):
        assert (version.name, version.specifier, hashes) in tested, version


def test_each_dependency_has_an_upper_bound_but_those_that_pyproject_names() -> None:
    comment = (
        (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("\ndependencies = [")[0]
    )
    for line in PROJECT["project"]["dependencies"]:
        needed = Requirement(line)
        bounded = any(one.operator == "<" for one in needed.specifier)
        assert bounded or needed.name in comment.rpartition("\n]\n")[2], line
