"""Wheels for machines that are not like this computer, from a package index in a folder."""

from __future__ import annotations

import importlib
import zipfile
from pathlib import Path

import pytest

from spotctl.clouds.errors import Unusable
from spotctl.clouds.remote import platforms
from spotctl.clouds.remote.bundle import packages_for
from spotctl.clouds.remote.platforms import (
    KnownPackage,
    MachinePlatform,
    Wheel,
    chosen_wheels,
    digest_of,
)
from tests.spotctl.clouds.remote.indexes import add_wheel, use_index

ARM = MachinePlatform((3, 13), "aarch64", (2, 41))
OLD = MachinePlatform((3, 11), "x86_64", (2, 35))
INSTALLED = {
    "engine": KnownPackage(
        "2.0", ("maths>=1", 'typing-bits>=4; python_version < "3.12"', 'gui; extra == "all"')
    ),
    "maths": KnownPackage("1.5+local", ('windows-only; sys_platform == "win32"',)),
}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "look_up_installed", INSTALLED.get)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    add_wheel(folder, "engine", "2.0", requires=INSTALLED["engine"].requires)
    add_wheel(folder, "engine", "3.0")
    for version in ("1.5", "1.6"):
        for tag in (
            "cp313-cp313-manylinux_2_28_aarch64",
            "cp311-abi3-manylinux2014_x86_64",
            "cp313-cp313-macosx_11_0_arm64",
        ):
            files = {
                "maths.so": tag.encode(),
                f"maths-{version}.data/platlib/fast.so": b"fast",
                "include/maths.h": b"",
            }
            add_wheel(folder, "maths", version, tag, files=files)
    add_wheel(folder, "typing-bits", "4.2", requires=["deep"])
    add_wheel(folder, "deep", "1")
    use_index(monkeypatch, folder)
    return folder


def names(chosen: tuple[Wheel, ...]) -> list[str]:
    return [wheel.url.rpartition("/")[2] for wheel in chosen]


def test_the_installed_versions_are_chosen_for_the_machines_python_and_processor_and_kept(
    tmp_path: Path, index: Path
) -> None:
    first = chosen_wheels(tmp_path, ["engine"], ARM)
    assert names(first) == [
        "engine-2.0-py3-none-any.whl",
        "maths-1.5-cp313-cp313-manylinux_2_28_aarch64.whl",
    ]
    for wheel in index.iterdir():
        wheel.unlink()
    assert chosen_wheels(tmp_path, ["engine"], ARM) == first


@pytest.mark.usefixtures("index")
def test_what_only_the_machine_needs_is_found_too(tmp_path: Path) -> None:
    """Markers are judged for the machine, not for this computer; an index knows what is not
    installed here.
    """
    assert names(chosen_wheels(tmp_path, ["engine"], OLD)) == [
        "deep-1-py3-none-any.whl",
        "engine-2.0-py3-none-any.whl",
        "maths-1.5-cp311-abi3-manylinux2014_x86_64.whl",
        "typing_bits-4.2-py3-none-any.whl",
    ]


def test_wheels_are_packed_as_they_are_imported_and_kept_and_others_are_refused(
    tmp_path: Path, index: Path
) -> None:
    packages = packages_for(tmp_path, ["maths"], ARM)
    assert packages.digest == digest_of(packages.wheels)
    (chosen,) = (
        wheel
        for wheel in index.iterdir()
        if wheel.name == "maths-1.5-cp313-cp313-manylinux_2_28_aarch64.whl"
    )
    content = chosen.read_bytes()
    add_wheel(
        index, "maths", "1.5", "cp313-cp313-manylinux_2_28_aarch64", files={"maths.so": b"other"}
    )
    with pytest.raises(Unusable, match="the package index now has other files"):
        packages.pack()
    chosen.write_bytes(content)
    first = packages.pack()
    with zipfile.ZipFile(first.path) as archive:
        assert archive.read("maths.so") == b"cp313-cp313-manylinux_2_28_aarch64"
        assert archive.read("fast.so") == b"fast"
        assert "include/maths.h" not in archive.namelist()
    for wheel in index.iterdir():
        wheel.unlink()
    assert packages_for(tmp_path, ["maths"], ARM).pack() == first


@pytest.mark.usefixtures("index")
@pytest.mark.parametrize(
    ("machine", "message"),
    [
        (
            MachinePlatform((3, 12), "aarch64", (2, 39)),
            "has no wheel of maths==1.5 for machines with Python 3.12 on aarch64: install another "
            "version of maths",
        ),
        (
            MachinePlatform((3, 13), "aarch64", (2, 27)),
            "has no wheel of maths==1.5 for machines with Python 3.13 on aarch64",
        ),
        (
            MachinePlatform((3, 13), "aarch64", (0, 0)),
            "has no wheel of maths==1.5 for machines with Python 3.13 on aarch64",
        ),
    ],
)
def test_a_missing_wheel_is_named_in_one_line(
    tmp_path: Path, machine: MachinePlatform, message: str
) -> None:
    with pytest.raises(Unusable) as refused:
        chosen_wheels(tmp_path, ["engine"], machine)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_index_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    # Nothing listens at this port.
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(
        Unusable,
        match=r"the package index, from which machines with .* get engine==2.0, does not answer",
    ):
        chosen_wheels(tmp_path, ["engine"], ARM)


def test_a_python_without_pip_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(platforms, "find_spec", lambda name: None if name == "pip" else find(name))
    with pytest.raises(Unusable, match="-m ensurepip"):
        chosen_wheels(tmp_path, ["engine"], ARM)


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("https://files.example.com/maths-1.5.whl", True),
        ("http://10.0.0.5/simple/maths-1.5.whl", True),
        ("https://user:****@index.example.com/maths-1.5.whl", False),
        ("http://127.0.0.1:8080/maths-1.5.whl", False),
        ("http://localhost/maths-1.5.whl", False),
        ("file:///home/me/maths-1.5.whl", False),
    ],
)
def test_machines_are_given_addresses_that_they_may_reach(url: str, public: bool) -> None:
    assert Wheel("maths", "1.5", url, "0").is_public is public
