from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.agent.devices import cards


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
    assert cards(tmp_path) == found
