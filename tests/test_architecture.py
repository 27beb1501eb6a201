"""docs/internals/architecture.md names files and folders that exist, and says what the contracts
enforce.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "internals" / "architecture.md").read_text(encoding="utf-8")
PACKAGES = ("spotctl", "bidbrain", "agileml", "pricing_data")


def _exists(name: str) -> bool:
    """Whether a name of the page is a file or folder of the project, of a package, or of
    spotctl."""
    places = [ROOT / name, *(ROOT / package / name for package in PACKAGES)]
    return any(place.exists() or place.with_suffix(".py").is_file() for place in places)


def test_every_file_and_folder_that_the_page_names_exists() -> None:
    names = re.findall(r"`([a-z_]+(?:/[a-z_0-9.]+)+)/?`", PAGE)
    assert len(names) > 50
    assert [name for name in names if not _exists(name)] == []


def test_the_page_has_a_row_for_every_room_of_spotctl() -> None:
    rooms = {path.name for path in (ROOT / "spotctl").iterdir() if (path / "__init__.py").is_file()}
    section = PAGE.partition("## spotctl, from top to bottom")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)/` \|", section, re.MULTILINE)) == rooms


def test_every_room_stands_in_the_contract_of_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
    (layers,) = (
        contract["layers"] for contract in contracts if contract.get("containers") == ["spotctl"]
    )
    rooms = {path.name for path in (ROOT / "spotctl").iterdir() if (path / "__init__.py").is_file()}
    assert {room.strip() for layer in layers for room in layer.split("|")} == rooms
