"""Packages for machines are chosen before anything is rented; what cannot work is refused in one
line.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from spotctl.clouds.remote import platforms
from spotctl.clouds.remote.bundle import packages_for
from spotctl.clouds.remote.platforms import MachinePlatform, here
from spotctl.files.job.data_places import store_packages
from spotctl.files.job.reader import loads
from spotctl.home.config import load
from spotctl.home.errors import BadRequest
from spotctl.run.start import admission
from spotctl.run.start.admission import check_machine_packages, possible_platforms
from spotctl.run.work.training_workload import NODE_PACKAGES
from tests.spotctl.clouds.remote.indexes import add_wheel, use_index

TRAINING = """\
name: mf
kind: agileml
app: mf
stop: {{clocks: 3}}
resources: {{clouds: [aws], types: [c6i.large], {arch} machines: 2}}
{image}
"""
COMMAND = (
    "name: c\nkind: command\nrun: 'true'\nworkdir: .\nresources: {clouds: [aws], types: "
    "[c6i.large]}\n"
)
UBUNTU, UBUNTU_ARM = (
    MachinePlatform((3, 12), processor, (2, 39)) for processor in ("x86_64", "aarch64")
)
"""The images that spotctl chooses."""


def training(arch: str = "", image: str = "") -> str:
    return TRAINING.format(arch=f"arch: {arch}," if arch else "", image=image)


def add_wheels(folder: Path, *tags: str) -> None:
    """An index with the installed versions of what nodes need, for some Pythons and processors."""
    installed = {
        name: platforms.look_up_installed(name) for name in (*NODE_PACKAGES, "cffi", "pycparser")
    }
    for tag in tags:
        for name, package in installed.items():
            assert package is not None
            add_wheel(folder, name, package.version, tag, package.requires)


@pytest.mark.parametrize(
    ("job", "own", "expected"),
    [
        (training(), (), [[UBUNTU]]),
        (training("arm64"), (), [[UBUNTU_ARM]]),
        (training("any"), (), [[UBUNTU], [UBUNTU_ARM]]),
    ],
)
def test_the_images_that_spotctl_chooses_have_a_known_python(
    tmp_path: Path, job: str, own: tuple[str, ...], expected: list[list[MachinePlatform]]
) -> None:
    spec = loads(job, tmp_path / "job.yaml")
    assert [list(group) for group in possible_platforms(spec, frozenset(own), None)] == expected


@pytest.mark.parametrize(
    ("image", "own"), [("image: {ami: ami-0123456789abcdef0}", ()), ("", ("aws",))]
)
def test_another_image_may_have_any_python_and_the_launchers_is_tried_first(
    tmp_path: Path, image: str, own: tuple[str, ...]
) -> None:
    spec = loads(training(image=image), tmp_path / "job.yaml")
    launcher = MachinePlatform((3, 13), "x86_64", (2, 41))
    (group,) = possible_platforms(spec, frozenset(own), launcher)
    assert [machine.python for machine in group] == [(3, 13), (3, 11), (3, 12)]


@pytest.mark.parametrize(
    ("arch", "tags", "why"),
    [
        ("", ("cp312-cp312-manylinux_2_28_x86_64",), ""),
        ("arm64", ("cp312-cp312-manylinux2014_aarch64",), ""),
        (
            "arm64",
            ("cp312-cp312-manylinux_2_28_x86_64",),
            "mf: .* no wheel of .* on aarch64: install",
        ),
        (
            "any",
            ("cp312-cp312-manylinux_2_28_x86_64",),
            "mf: .* no wheel of .* on aarch64: install",
        ),
    ],
)
@pytest.mark.parametrize("launcher", [None, MachinePlatform((3, 13), "aarch64", (2, 41))])
def test_a_training_is_refused_before_anything_is_rented_unless_its_machines_get_packages(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    launcher: MachinePlatform | None,
    arch: str,
    tags: tuple[str, ...],
    why: str,
) -> None:
    """The launcher is a Mac, or a Linux computer with another Python and processor."""
    for module in (admission, "spotctl.clouds.remote.bundle"):
        name = module if isinstance(module, str) else module.__name__
        monkeypatch.setattr(f"{name}.here", lambda: launcher)
    use_index(monkeypatch, tmp_path / "index")
    add_wheels(tmp_path / "index", *tags)
    spec, settings = loads(training(arch), tmp_path / "job.yaml"), load({}, tmp_path)
    if why:
        with pytest.raises(BadRequest, match=why):
            check_machine_packages(spec, settings)
    else:
        check_machine_packages(spec, settings)


def test_a_launcher_like_its_machines_needs_no_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_index(monkeypatch, tmp_path)
    own = here()
    assert own is not None
    monkeypatch.setattr(admission, "USUAL_PYTHON", own.python)
    monkeypatch.setitem(admission._PROCESSORS, "x86_64", (own.processor,))
    check_machine_packages(loads(training(), tmp_path / "job.yaml"), load({}, tmp_path))


def test_machines_of_a_job_with_a_bucket_get_obstore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the index that they reach: the wheel is for all Pythons from one on."""
    places = ("checkpoint: {path", "outputs: {model", "data: {corpus")
    specs = [
        loads(f"{COMMAND}{place}: 's3://bucket/c'}}\n", tmp_path / "job.yaml") for place in places
    ]
    assert [store_packages(spec) for spec in specs] == [("obstore",)] * 3
    for module in (admission.__name__, "spotctl.clouds.remote.bundle"):
        monkeypatch.setattr(f"{module}.here", lambda: MachinePlatform((3, 13), "aarch64", (2, 41)))
    use_index(monkeypatch, tmp_path / "index")
    settings = load({}, tmp_path)
    with pytest.raises(BadRequest, match="no wheel of obstore"):
        check_machine_packages(specs[0], settings)
    for name, tag in {
        "obstore": "cp311-abi3-manylinux_2_28_x86_64",
        "typing-extensions": "py3-none-any",
    }.items():
        installed = platforms.look_up_installed(name)
        assert installed is not None
        add_wheel(tmp_path / "index", name, installed.version, tag, installed.requires)
    check_machine_packages(specs[0], settings)
    packages = packages_for(tmp_path / "archives", store_packages(specs[0]), UBUNTU)
    assert {wheel.name for wheel in packages.wheels} == {"obstore", "typing-extensions"}


def test_obstore_travels_to_machines_like_the_launcher_as_it_is_installed(tmp_path: Path) -> None:
    own = here()
    assert own is not None
    packages = packages_for(tmp_path, ("obstore",), own)
    assert packages.wheels == ()
    with zipfile.ZipFile(packages.pack().path) as archive:
        assert "obstore/_obstore.abi3.so" in archive.namelist()
    assert packages_for(tmp_path, ("obstore",), own).digest == packages.digest


def test_a_command_brings_its_own_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_index(monkeypatch, tmp_path)
    spec, settings = loads(COMMAND, tmp_path / "job.yaml"), load({}, tmp_path)
    check_machine_packages(spec, settings)
    with pytest.raises(BadRequest, match="no wheel of"):
        check_machine_packages(spec, settings, ["numpy"])
