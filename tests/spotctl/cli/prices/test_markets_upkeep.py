"""The commands that keep the stored prices whole and right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documented import assert_explained
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl

MARKET = "aws/us-east-1/us-east-1a/c5.large"
ROWS = [
    f"2025-03-01T{hour:02}:00:00Z,aws,us-east-1,us-east-1a,c5.large,Linux/UNIX,0.04"
    for hour in range(9)
]
HEADER = "timestamp,cloud,region,zone,instance_type,product,spot_price"


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """The folder of a store with one market, one of whose prices is far too high."""
    file = tmp_path / "history.csv"
    file.write_text("\n".join([HEADER, *ROWS, ROWS[3].replace("0.04", "4.0")]) + "\n")
    assert spotctl("prices", "import", file).code == 0
    return tmp_path / "home" / "prices"


def highest() -> float:
    return float(
        spotctl("lab", "prices", "ls", "--stats", MARKET, "--json").json["markets"][0]["highest"]
    )


def test_a_wrong_price_is_corrected_and_the_correction_is_shown(prices: Path) -> None:
    assert prices.exists()
    assert highest() == 4.0
    moment = "2025-03-01T03:00:00Z"
    made = spotctl(
        "lab", "prices", "correct", MARKET, moment, "0.05", "--reason", "a typo", "--json"
    )
    assert made.code == 0
    assert made.json["usd_per_hour"] == 0.05
    assert highest() == 0.05
    assert (
        spotctl(
            "lab", "prices", "correct", MARKET, moment, "--withdraw", "--reason", "never happened"
        ).code
        == 0
    )
    assert highest() == 0.04
    shown = spotctl("prices", "show", MARKET, "--json").json
    assert [(each["usd_per_hour"], each["reason"]) for each in shown["corrections"]] == [
        (0.05, "a typo"),
        (None, "never happened"),
    ]
    assert (
        spotctl("lab", "prices", "correct", "--list", "--json").json["corrections"]
        == shown["corrections"]
    )
    assert "withdrawn" in spotctl("prices", "show", MARKET).err
    for words, answer in (("prices correct", made.json), ("prices show", shown)):
        assert_explained(words.split(), answer)


@pytest.mark.parametrize(
    "words",
    [
        ["2025-03-01T03:00:00Z", "0.05"],
        ["2025-03-01T03:00:00Z", "--reason", "x"],
        ["2025-03-01T03:00:00Z", "1", "--withdraw", "--reason", "x"],
        ["2025-03-01T03:00:00Z", "0", "--reason", "x"],
        ["2025-03-01T03:30:00Z", "1", "--reason", "x"],
    ],
)
def test_an_unclear_correction_is_refused(
    prices: Path, words: list[str], approved: Approved
) -> None:
    assert prices.exists()
    ended = spotctl("lab", "prices", "correct", MARKET, *words)
    assert ended.code in (1, 2)
    approved(ended)
    assert highest() == 4.0


def test_a_lost_manifest_is_remarked_and_changes_no_answer(prices: Path, tmp_path: Path) -> None:
    before = spotctl("lab", "prices", "ls", "--stats", "--json").json["markets"][0]["mean"]
    (prices / "manifest.json").unlink()
    ended = spotctl("lab", "prices", "ls", "--stats", "--json")
    assert ended.json["markets"][0]["mean"] == before
    assert "manifest.json is missing" in ended.err
    check = spotctl("lab", "prices", "ls", "--check", "--json")
    assert check.code == 1
    assert [flaw["file"] for flaw in check.json["flaws"]] == ["manifest.json"]
    assert spotctl("prices", "import", tmp_path / "history.csv").code == 0
    after = spotctl("lab", "prices", "ls", "--check")
    assert (after.code, "sound, 3 files, 9 events" in after.out) == (0, True)


def test_a_missing_file_is_an_error_with_its_cure(prices: Path) -> None:
    (path,) = prices.glob("prices-*")
    path.unlink()
    assert spotctl("lab", "prices", "ls").code == 1
    check = spotctl("lab", "prices", "ls", "--check")
    assert check.code == 1
    assert f"{path.name}: is missing; restore it from a backup" in check.out


def test_a_backup_is_checked_and_never_overwrites(prices: Path, tmp_path: Path) -> None:
    ended = spotctl("lab", "prices", "backup", tmp_path / "copy", "--json")
    assert (ended.code, ended.json["events"]) == (0, 9)
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {
        path.name for path in prices.iterdir()
    } - {"lock"}
    assert spotctl("lab", "prices", "backup", tmp_path / "copy").code == 2


def test_damaged_prices_are_set_aside_and_every_table_says_what_is_lost(
    prices: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.csv"
    other.write_text(
        f"{HEADER}\n" + ROWS[0].replace("c5.large", "c6i.large").replace("2025", "2026")
    )
    assert spotctl("prices", "import", other).code == 0
    damaged = min(prices.glob("prices-*"))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert spotctl("lab", "prices", "ls").code == 1
    checked = spotctl("lab", "prices", "ls", "--check")
    assert "spotctl lab prices ls --check --set-aside" in " ".join(checked.out.split())
    ended = spotctl("lab", "prices", "ls", "--check", "--set-aside", "--json")
    assert (ended.code, ended.json["flaws"]) == (0, [])
    (gone,) = ended.json["set_aside"]
    assert (gone["first"], gone["last"]) == ("2025-03-01T00:00:00Z", "2025-03-01T08:00:00Z")
    assert (prices / "set-aside" / gone["file"]).exists()
    ls = ("lab", "prices", "ls")
    for words in (
        ls,
        (*ls, "--stats"),
        ("prices", "best", "--max-age", "9999d"),
        (*ls, "--check", "--set-aside"),
    ):
        shown = spotctl(*words)
        assert shown.code == 0, shown
        assert "some prices of 2025-03-01T00:00:00Z to 2025-03-01T08:00:00Z are lost" in shown.err
        assert spotctl(*words, "--json").json["lost"] == [gone]
