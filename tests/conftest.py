"""Fixtures for every test: a home of its own, no credentials, and the records of real markets where
they exist.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import samples

# Examples are the same in every run, so that a green run stays green; `make fuzz` draws new ones.
# No example may fail because the computer is busy. The short part takes half as many where a test
# does not say how many it needs.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("short", parent=settings.get_profile("repeatable"), max_examples=50)
settings.register_profile(
    "fuzz", parent=settings.get_profile("repeatable"), derandomize=False, print_blob=True
)
_PROFILE = "short" if os.environ.get(samples.PART) == samples.SHORT else "repeatable"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", _PROFILE))

# readline, where something imports it, tells child processes (the test runner's too) of a terminal
# of 80 columns.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps the garbage collector from what imports and the collection of tests allocate, which
    stays to the end: looking through it again and again takes as long as the collection itself."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Spares a part of the tests the import of files that have none of it."""
    name = collection_path.relative_to(config.rootpath).as_posix()
    if not collection_path.match("test_*.py"):
        return None
    seed = config.getoption("randomly_seed", None)
    return True if samples.is_elsewhere(name) or not samples.is_drawn(name, seed) else None


_SLOW_FILES_END = 0.6
"""In which part of a run the files with slow tests begin: none of them is left to one worker at the
end."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Five for two processors: tests of machines and trainings mostly wait for them."""
    return -(-5 * len(os.sched_getaffinity(0)) // 2)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mixes files with slow tests, which mostly wait, with the others, which compute: so no
    processor is idle.
    """
    items[:], other_part = samples.part_of(items)
    if samples.wanted():
        items[:], left_out = samples.sampled(items, config.getoption("randomly_seed", None))
        other_part += left_out
    config.hook.pytest_deselected(items=other_part)
    slow = dict.fromkeys(item.path for item in items if item.get_closest_marker("slow"))
    others = dict.fromkeys(item.path for item in items if item.path not in slow)
    place = {path: _SLOW_FILES_END * i / len(slow) for i, path in enumerate(slow)}
    place |= {path: i / len(others) for i, path in enumerate(others)}
    items.sort(key=lambda item: place[item.path])


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps tests away from the settings, credentials and prices of the user who runs them."""
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SPOTCTL_PRICE_CATALOG_URL", "")
    for name in ("AWS_EC2_METADATA_DISABLED", "NO_GCE_CHECK"):
        monkeypatch.setenv(name, "true")
    for name in (
        "AWS_PROFILE",
        "AWS_ACCESS_KEY_ID",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "AZURE_SUBSCRIPTION_ID",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def shared_data() -> Path:
    """Records of real markets, which are not part of the project."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no records of real markets in {SHARED_DATA}")
    return SHARED_DATA
