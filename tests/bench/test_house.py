from __future__ import annotations

from pathlib import Path

import pytest

from bench.counts import PACKAGES
from bench.house import house, type_names

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


SHARED = {
    *("BadInput", "SpotCallback"),  # docs/internals/architecture.md says why
    *(
        "Array",
        "Bools",
        "Counts",
        "Floats",
        "Numbers",
    ),  # arrays of numpy, by the type of their items
}


def test_the_name_of_a_type_has_one_meaning() -> None:
    assert sorted(type_names(ROOT).keys() - SHARED) == []


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
    for name, source in {
        "__init__.py": "from spotctl.low import x",
        "low.py": "import spotctl",
    }.items():
        (tmp_path / "spotctl").mkdir(exist_ok=True)
        (tmp_path / "spotctl" / name).write_text(source)
    assert house(tmp_path, "spotctl").circles == (("__init__", "low"),)


def test_types_defined_more_than_once(tmp_path: Path) -> None:
    for package, name in (
        ("spotctl", "Plan"),
        ("agileml", "Plan"),
        ("bidbrain", "Offer"),
        ("bidbrain", "_Offer"),
    ):
        path = tmp_path / package / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"class {name}: ...\n{name}s = list[{name}]\nLIMIT = 3")
    places = ["spotctl/Plan.py", "agileml/Plan.py"]
    assert type_names(tmp_path) == {"Plan": places, "Plans": places}
