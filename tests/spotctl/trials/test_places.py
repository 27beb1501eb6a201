"""What a script writes in its folder: what its next start may need, and what is no part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.trials.places import WrittenPlaces


def written(folder: Path, *names: str, given: tuple[str, ...] = ()) -> tuple[str, ...]:
    for name in given:
        write(folder / name, "given")
    places = WrittenPlaces(folder)
    for name in names:
        write(folder / name, "written")
    return places.needed(0.0)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("names", "given", "places"),
    [
        (("model.npz",), ("train.py",), ("model.npz",)),
        (("ckpt/a/1.pt", "ckpt/b/2.pt"), (), ("ckpt/",)),
        (("epoch_1.pt", "epoch_2.pt"), (), ("epoch_*.pt",)),
        (("step-100/net", "step-200/net"), (), ("step-*/",)),
        (("src/out/net",), ("src/train.py",), ("src/out/",)),
        (("src/net_2.pt",), ("src/train.py", "src/net_1.pt"), ("src/net_2.pt",)),
        (("run/train.log", "metrics.csv", "run/events.out.tfevents.1"), (), ()),
        (("__pycache__/a.bin", "wandb/b", "data/cache/c", ".hidden/d"), (), ()),
    ],
)
def test_the_places_of_what_is_written(
    tmp_path: Path, names: tuple[str, ...], given: tuple[str, ...], places: tuple[str, ...]
) -> None:
    assert written(tmp_path, *names, given=given) == places


def test_a_file_that_only_grows_at_its_end_is_a_log(tmp_path: Path) -> None:
    places = WrittenPlaces(tmp_path)
    for step in range(3):
        with (tmp_path / "history").open("a") as file:
            file.write(f"step {step}\n")
        (tmp_path / "state").write_text(f"{step}" * (step + 1))
        found = places.needed(0.0)
    assert (found, places.logs) == (("state",), {"history"})


def test_an_archive_that_is_seen_half_written_is_no_log(tmp_path: Path) -> None:
    places = WrittenPlaces(tmp_path)
    for content in (b"PK\x03\x04half", b"PK\x03\x04half and whole"):
        (tmp_path / "state.pt").write_bytes(content)
        found = places.needed(0.0)
    assert (found, places.logs) == (("state.pt",), set())


def test_what_was_written_before_the_work_began_is_no_state(tmp_path: Path) -> None:
    places = WrittenPlaces(tmp_path)
    write(tmp_path / "data/set.bin", "downloaded")
    began = (tmp_path / "data/set.bin").stat().st_mtime + 1.0
    assert places.needed(began) == ()
