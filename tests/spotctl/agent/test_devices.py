from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.agent.devices import container_options, gpus


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ((), 0),
        (("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-caps", "dri/renderD128"), 3),
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
