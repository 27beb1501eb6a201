"""How long nodes of the local market take to start: as long as on this computer, however fast the market is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pricing_data.units import MINUTE
from spotctl.files.job.reader import loads
from spotctl.planning.facts import OVERHEADS, with_local_starts

_EXAMPLES = Path(__file__).parents[3] / "examples" / "pipelines"
SPLIT = "app: net.py:small_transformer\nparallel: {profile: net.json, batch: 8, stages: 2}\n"


@pytest.mark.parametrize(
    ("program", "speed", "minutes"),
    [("app: mf\n", 60, 5), ("app: mf\n", 400, 10), (SPLIT, 60, 5), (SPLIT, 120, 8)],
)
def test_a_model_that_is_split_takes_longer(tmp_path: Path, program: str, speed: int, minutes: int) -> None:
    """Its nodes import PyTorch."""
    shutil.copy(_EXAMPLES / "models.py", tmp_path / "net.py")
    shutil.copy(_EXAMPLES / "small.json", tmp_path / "net.json")
    text = (
        f"name: starts\nkind: agileml\n{program}stop: {{clocks: 4}}\nresources: {{clouds: [local], machines: 2..4}}\n"
        f"local: {{speed: {speed}}}\n"
    )
    spec = loads(text, tmp_path / "job.yaml")
    assert with_local_starts(OVERHEADS, spec).startup == minutes * MINUTE
