from __future__ import annotations

from pathlib import Path

import pytest

from bench.house import PACKAGES, class_names, house

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("package", PACKAGES)
def test_no_rooms_and_no_modules_import_each_other_in_a_circle(package: str) -> None:
    figures = house(ROOT, package)
    assert (figures.up, figures.circles, figures.module_circles) == (0, (), ())


def test_spotctl_is_seen_from_its_folders() -> None:
    figures = house(ROOT, "spotctl")
    assert figures.rooms <= 15
    assert figures.floors <= 9
    assert figures.arrows <= 60


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
        "__init__.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from spotctl.top.a import y",
    }
    for name, source in modules.items():
        path = tmp_path / "spotctl" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    figures = house(tmp_path, "spotctl")
    assert (figures.rooms, figures.floors, figures.arrows, figures.up) == (6, 4, 6, 2)
    assert figures.circles == (("one", "two"),)
    assert figures.module_circles == (("spotctl.one", "spotctl.two"),)


def test_an_import_of_the_package_itself_is_an_arrow(tmp_path: Path) -> None:
    for name, source in {"__init__.py": "from spotctl.low import x", "low.py": "import spotctl"}.items():
        (tmp_path / "spotctl").mkdir(exist_ok=True)
        (tmp_path / "spotctl" / name).write_text(source)
    assert house(tmp_path, "spotctl").circles == (("__init__", "low"),)


def test_class_names_defined_more_than_once(tmp_path: Path) -> None:
    for package, name in (("spotctl", "Plan"), ("agileml", "Plan"), ("bidbrain", "Offer"), ("bidbrain", "_Offer")):
        path = tmp_path / package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"class {name}: ...")
    assert class_names(tmp_path) == {"Plan": ["spotctl/Plan.py", "agileml/Plan.py"]}
