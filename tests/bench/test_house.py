from __future__ import annotations

from pathlib import Path

import pytest

from bench.house import PACKAGES, class_names, house

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_rooms_import_each_other_in_a_circle(package: str) -> None:
    assert house(ROOT, package).circles == ()


def test_one_class_name_has_one_meaning() -> None:
    """These mean the same in packages or modules that do not import each other; docs/architecture.md says so."""
    assert list(class_names(ROOT)) == ["BadInput", "SpotCallback"]


def test_rooms_floors_and_circles_of_a_small_house(tmp_path: Path) -> None:
    modules = {
        "top/a.py": "from spotctl.low import x\nfrom spotctl.middle.b import y",
        "middle/b.py": "import spotctl.low",
        "middle/c.py": "from spotctl.middle import b",
        "low.py": "",
        "one.py": "from spotctl import two",
        "two.py": "def lazy() -> None:\n    from spotctl.one import z",
    }
    for name, source in modules.items():
        path = tmp_path / "spotctl" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    found = house(tmp_path, "spotctl")
    assert (found.rooms, found.floors, found.arrows) == (5, 3, 5)
    assert found.circles == (("one", "two"),)


def test_class_names_defined_more_than_once(tmp_path: Path) -> None:
    for package, name in (("spotctl", "Plan"), ("agileml", "Plan"), ("bidbrain", "Offer"), ("bidbrain", "_Offer")):
        path = tmp_path / package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"class {name}: ...")
    assert class_names(tmp_path) == {"Plan": ["spotctl/Plan.py", "agileml/Plan.py"]}
