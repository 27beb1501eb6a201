"""What is decided about a container before podman is asked; in `machines/remote`, some run."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest

from spotctl.agent.container.podman import (
    Container,
    container_options,
    exports,
    full_name,
    gpus,
    podman_words,
)
from spotctl.agent.container.processes import MARK


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("python", "docker.io/library/python"),
        ("python:3.12", "docker.io/library/python:3.12"),
        ("me/train:1", "docker.io/me/train:1"),
        ("ghcr.io/me/train", "ghcr.io/me/train"),
        ("localhost/mine", "localhost/mine"),
        ("here:5000/mine", "here:5000/mine"),
    ],
)
def test_a_name_without_a_registry_is_one_of_docker_hub(name: str, full: str) -> None:
    assert full_name(name) == full


def test_the_shell_reads_what_the_payload_gets_and_nothing_else() -> None:
    container = Container("app", "LOGIN", ("A", "LOGIN"))
    environment = {
        "A": "it's $HOME\n`",
        "B": "other",
        "LOGIN": "u:p",
        "SPOTCTL_JOB": "j",
        "PATH": "/machine",
    }
    script = exports(container, environment) + "env -0"
    ended = subprocess.run(
        ["/bin/sh", "-c", script], env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=True
    )
    found = dict(one.split("=", 1) for one in ended.stdout.decode().split("\0") if one)
    assert {
        "A": environment["A"],
        "SPOTCTL_JOB": "j",
        "PATH": "/usr/bin:/bin",
    }.items() <= found.items()
    assert not {"B", "LOGIN"} & set(found)


def test_no_value_of_a_variable_is_an_argument(tmp_path: Path) -> None:
    environment = {"TOKEN": "planted", MARK: str(tmp_path)}
    container = Container("app", "LOGIN", ("TOKEN",))
    assert Container.from_json(json.dumps(asdict(container))) == container
    words = podman_words(container, ["true"], environment, str(tmp_path))
    assert "planted" not in " ".join([*words, *container.runs("python3", ["true"])])
    assert f"--volume={tmp_path}:{tmp_path}" in words


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ((), 0),
        (
            (
                "nvidia0",
                "nvidia1",
                "nvidia10",
                "nvidiactl",
                "nvidia-uvm",
                "nvidia-caps",
                "dri/renderD128",
            ),
            3,
        ),
        (("kfd", "dri/card0", "dri/renderD128", "dri/renderD129"), 2),
        (("dri/card0", "dri/renderD128"), 0),
    ],
)
def test_cards_that_compute_are_counted(tmp_path: Path, names: tuple[str, ...], found: int) -> None:
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert gpus(tmp_path) == found


def test_a_container_gets_the_cards(tmp_path: Path) -> None:
    devices, described = tmp_path / "dev", tmp_path / "cdi"
    for folder in (devices / "nvidia-caps", described):
        folder.mkdir(parents=True)
    assert container_options(devices, [described]) == []
    for name in ("nvidia0", "nvidia-uvm", "nvidiactl"):
        (devices / name).touch()
    shown = sorted(f"--device={devices / name}" for name in ("nvidia0", "nvidia-uvm", "nvidiactl"))
    assert container_options(devices, [described]) == ["--group-add=keep-groups", *shown]
    (described / "nvidia.yaml").touch()
    assert container_options(devices, [described]) == ["--device=nvidia.com/gpu=all"]
