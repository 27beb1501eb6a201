"""`spotctl prices` from its entry point, with files and a home of its own."""

from __future__ import annotations

import csv
import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pricing_data.sources.test_files import GOOD, HEADER, written
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import Ended, spotctl
from tests.spotctl.show.costs import browser

MARKET = "aws/us-east-1/us-east-1a/c1.medium"
DAY_LATER = GOOD.replace("02-25T", "02-26T").replace("0.0162", "0.0181")
ON_DEMAND = (
    "asof,region,instance_type,on_demand_price,source\n2016-04-18,us-east-1,c1.medium,0.130,a "
    "list\n"
)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    return written(tmp_path / "history.csv", HEADER, GOOD, DAY_LATER)


@pytest.fixture
def imported(history: Path, tmp_path: Path) -> Ended:
    (tmp_path / "list.csv").write_text(ON_DEMAND)
    ended = spotctl("prices", "import", history, "--on-demand", tmp_path / "list.csv", "--json")
    assert ended.code == 0
    return ended


def test_import_reports_what_happened_to_each_row(imported: Ended) -> None:
    first, second = imported.json["files"]
    assert (first["rows"], first["added"], first["skipped"], first["layout"]) == (
        2,
        2,
        0,
        "price changes",
    )
    assert (second["rows"], second["facts"], second["layout"]) == (1, 1, "on-demand prices")
    assert imported.err == ""


@pytest.mark.usefixtures("imported")
def test_show_and_stats_agree(history: Path) -> None:
    shown = spotctl("prices", "show", MARKET, "--json").json
    assert {
        key: shown[key] for key in ("market", "events", "first", "last", "price_now", "on_demand")
    } == {
        "market": MARKET,
        "events": 2,
        "first": "2016-02-25T00:35:34Z",
        "last": "2016-02-26T00:35:34Z",
        "price_now": 0.0181,
        "on_demand": 0.13,
    }
    assert shown["mean"] == pytest.approx(0.0162)
    assert shown["discount"] == pytest.approx(1 - 0.0162 / 0.13)
    listed = spotctl("lab", "prices", "ls", "--stats", "aws", "--json").json["markets"]
    assert shown.pop("machine")["vcpus"] == 2
    assert [{**one, "age_seconds": 0} for one in listed] == [{**shown, "age_seconds": 0}]
    listed = spotctl("lab", "prices", "ls", "--json").json
    assert listed["markets"] == [MARKET]
    assert [(prices["cloud"], prices["state"]) for prices in listed["clouds"]] == [("aws", "old")]
    assert listed["fetch"] == "spotctl prices fetch --cloud aws"
    text = spotctl("prices", "show", MARKET).out
    assert "$0.0181/h" in text
    assert "▁" in text
    assert history.name not in text


COLUMNS = "count(*) as n, max(usd_per_hour) as top, max(time) as last"


@pytest.mark.usefixtures("imported")
def test_every_view_prints_only_json_with_json(tmp_path: Path) -> None:
    png = tmp_path / "p.png"
    for words in (
        ["lab", "prices", "ls", "aws", "--json"],
        ["prices", "show", MARKET, "--json"],
        ["lab", "prices", "ls", "--stats", "--json"],
        ["lab", "prices", "ls", "--gaps", "--json"],
        ["lab", "prices", "plot", MARKET, "--out", png, "--json"],
        ["lab", "prices", "export", "--out", tmp_path / "e.csv", "--json"],
        ["lab", "prices", "sql", f"select {COLUMNS} from prices", "--json"],
    ):
        ended = spotctl(*words)
        assert (ended.code, ended.err) == (0, ""), ended
        assert isinstance(ended.json, dict)
    assert ended.json == {"rows": [{"n": 2, "top": 0.0181, "last": "2016-02-26 00:35:34"}]}


@pytest.mark.parametrize("columns", [80, 100, 110, 120, 130, 150, 200])
@pytest.mark.parametrize(
    "command",
    [
        ("lab", "prices", "ls", "--stats", "local/*/*/c4.*"),
        ("prices", "best", "local/*/*/c4.*", "--vcpus", "8"),
    ],
)
def test_names_of_markets_stay_whole(command: tuple[str, ...], columns: int) -> None:
    shown = spotctl(*command, COLUMNS=str(columns)).out.splitlines()
    rows = [line for line in shown if line.startswith("local/")]
    assert rows
    assert len(rows) == len(shown) - 1, "nothing is folded"
    assert all(
        "c4.2xlarge (synthetic) " in line or "c4.xlarge (synthetic) " in line for line in rows
    )
    assert max(map(len, shown)) <= columns


@pytest.mark.skipif(
    browser.installed() is None, reason=f"none of {', '.join(browser.NAMES)} is installed"
)
def test_a_desk_shows_the_page_of_prices_as_a_whole(tmp_path: Path) -> None:
    """Without prices of one's own, it is that of synthetic markets, whose names are long."""
    program, path = browser.installed(), tmp_path / "p.html"
    assert program is not None
    assert (
        spotctl(
            "lab", "prices", "plot", "local/sim-east/*/c4.2xlarge", "--last", "1d", "--out", path
        ).code
        == 0
    )
    with browser.opened(program, path) as tab:
        tab.resize(1280, 800)
        cut = (
            "[...document.querySelectorAll('.wide')].filter(part => part.scrollWidth > "
            "part.clientWidth).length"
        )
        assert tab.value(cut) == 0
        tab.resize(400, 800)
        assert tab.value("document.documentElement.scrollWidth") <= 400


def test_last_looks_at_the_end_of_a_history_only() -> None:
    name = spotctl("lab", "prices", "ls", "--json").json["markets"][0]
    whole, part = (
        spotctl("prices", "show", name, *more, "--json").json for more in ([], ["--last", "2d"])
    )
    assert part["last"] == whole["last"] == "2026-01-31T00:00:00Z"
    assert "2026-01-28" < part["first"] <= "2026-01-29T00:00:00Z"
    assert 2 <= part["events"] < whole["events"]
    listed = spotctl("lab", "prices", "ls", "--stats", name, "--last", "2d", "--json").json[
        "markets"
    ][0]
    assert part.pop("machine") == whole["machine"]
    assert {**listed, "age_seconds": 0} == {**part, "age_seconds": 0}
    assert spotctl("prices", "show", name, "--last", "99999d", "--json").code == 2
    assert (
        spotctl("prices", "show", name, "--last", "900d", "--json").json["events"]
        == whole["events"]
    )


@pytest.mark.usefixtures("imported")
def test_export_to_a_pipe_is_what_was_imported(history: Path) -> None:
    exported = spotctl("lab", "prices", "export").out.replace('"', "").splitlines()
    assert exported == history.read_text().splitlines()


@pytest.mark.usefixtures("imported")
def test_export_as_json_has_the_rows_that_the_csv_has(history: Path) -> None:
    answer = spotctl("lab", "prices", "export", "--json").json
    rows = [
        {**row, "spot_price": float(row["spot_price"])}
        for row in csv.DictReader(history.read_text().splitlines())
    ]
    assert answer == {"file": None, "rows": 2, "markets": 1, "history": rows}


def test_without_stored_prices_the_synthetic_sample_is_shown_and_labeled(history: Path) -> None:
    names = spotctl("lab", "prices", "ls", "--json").json["markets"]
    assert len(names) >= 16
    assert all(name.startswith("local/") for name in names)
    assert all(
        line.endswith("(synthetic)") for line in spotctl("lab", "prices", "ls").out.splitlines()
    )
    assert "(synthetic)" in spotctl("prices", "show", names[0]).out
    assert spotctl("prices", "show", names[0], "--json").json["synthetic"] is True
    spotctl("prices", "import", history)
    assert spotctl("lab", "prices", "ls", "--json").json["markets"] == [MARKET]
    assert spotctl("lab", "prices", "ls", "local", "--json").json["markets"] == names
    assert spotctl("prices", "show", names[0]).code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["prices", "show", "aws/us-east-1/us-east-1a/c9.huge"],
        ["prices", "show", "local/sim-east/sim-east-b/c4.2xlareg"],
        ["prices", "show", "c4.xlarge"],
        ["lab", "prices", "ls", "--stats", "local/*/*/c4.xlrge"],
        ["lab", "prices", "ls", "--stats", "gcp/*"],
        ["lab", "prices", "plot", "local", "--out", "x.pdf"],
        ["lab", "prices", "plot", "local/*/*/*", "--out", "/no/such/folder/x.png"],
        ["lab", "prices", "export", "--out", "x.xlsx"],
        ["lab", "prices", "ls", "--vcpus", "many"],
        ["lab", "prices", "ls", "--vcpus", "8..4"],
        ["lab", "prices", "sql", "drop everything"],
        ["prices", "import"],
        ["prices", "fetch", "--cloud", "ibm"],
        ["prices", "fetch", "--cloud", "aws", "--region", "eastus"],
        ["prices", "fetch", "--since", "tomorrow"],
        ["prices", "fetch", "--since", "2099-01-01"],
        ["lab", "prices", "ls", "--stats", "--gaps"],
        ["lab", "prices", "ls", "--last", "7d"],
        ["lab", "prices", "correct", "--list", "x"],
        ["lab", "prices", "correct"],
        ["prices", "nonsense"],
        ["prices", "show"],
    ],
)
def test_errors_are_one_line_and_an_exit_code(words: list[str], approved: Approved) -> None:
    ended = spotctl(*words)
    approved(ended)
    assert ended.out == ""


def test_each_broken_file_is_one_line_and_the_others_are_imported(
    history: Path, tmp_path: Path
) -> None:
    columns = written(tmp_path / "columns.csv", "a,b", "1,2")
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress("\n".join([HEADER, *[GOOD] * 3000]).encode())[:-9])
    ended = spotctl("prices", "import", columns, cut, tmp_path / "none.csv", history)
    assert ended.code == 2
    said = ended.err.splitlines()
    assert len(said) == 3
    assert "columns 'a, b' match no layout" in said[0]
    assert "is a gzip file that breaks off" in said[1]
    assert "No such file" in said[2]
    assert spotctl("prices", "show", MARKET, "--json").json["events"] == 2


def test_bad_rows_are_listed_and_skipped_or_with_strict_rejected(tmp_path: Path) -> None:
    path = written(
        tmp_path / "f.csv",
        HEADER,
        GOOD.replace("0.0162", "-0.01"),
        GOOD,
        "2016,aws",
        GOOD.replace("2016-02-25", "yesterday"),
    )
    refused = spotctl("prices", "import", path, "--strict")
    assert refused.code == 2
    assert "was rejected: 3 bad rows, the first in line 2" in refused.err
    assert spotctl("lab", "prices", "ls", "aws", "--json").json["markets"] == []
    taken = spotctl("prices", "import", path)
    assert taken.code == 0
    assert [line.split(": ")[1] for line in taken.err.splitlines()] == [
        "line 2",
        "line 4",
        "line 5",
    ]
    assert spotctl("lab", "prices", "ls", "--json").json["markets"] == [MARKET]


@pytest.mark.parametrize(
    ("name", "lines", "said"),
    [
        (
            "f.csv",
            [HEADER, *[GOOD.replace("0.0162", "cheap")] * 2],
            "no row was imported: 2 bad rows",
        ),
        ("f.csv", [HEADER], "contains no rows"),
        ("f.json", ['{"SpotPriceHistory": []}'], "contains no rows"),
    ],
)
def test_a_file_without_a_usable_row_fails(
    tmp_path: Path, name: str, lines: list[str], said: str
) -> None:
    path = written(tmp_path / name, *lines)
    ended = spotctl("prices", "import", path, "--json")
    assert ended.code == 2
    assert ended.err.splitlines()[0] == f"spotctl: {path}: {said}"
    assert ended.json["files"][0]["failure"] == said


def test_an_unwritable_home_is_reported(history: Path, tmp_path: Path, approved: Approved) -> None:
    (tmp_path / "file").touch()
    flagged: list[str | Path] = ["--home", tmp_path / "file"]
    for flags in (flagged, []):
        ended = spotctl(
            *flags, "prices", "import", history, SPOTCTL_HOME=str(tmp_path / "file" / "below")
        )
        approved(ended)


@pytest.mark.usefixtures("imported")
def test_the_result_of_sql_is_printed_unchanged() -> None:
    shown = spotctl(
        "lab",
        "prices",
        "sql",
        "select '[red]hi[/x]' as word, null as nothing, market from prices limit 1",
    ).out
    assert "[red]hi[/x]" in shown
    assert MARKET in shown
    assert "None" not in shown


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how much memory a process has")
def test_sql_keeps_to_its_memory_where_duckdb_does_not(approved: Approved) -> None:
    ended = spotctl("lab", "prices", "sql", "select repeat('x', 4000000000) as x")
    approved(ended)
    approved(spotctl("lab", "prices", "sql", "select 1 as x", "--memory", "lots"))
    assert spotctl("lab", "prices", "sql", "select 1 as x", "--json").json == {"rows": [{"x": 1}]}


def test_a_full_disk_while_printing_is_a_one_line_error(imported: Ended) -> None:
    assert imported.code == 0
    command = (
        f"{sys.executable} -c 'from spotctl.cli.app import main; main()' lab prices export local > "
        "/dev/full"
    )
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.startswith("spotctl: ")
    assert "No space left" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_rows_committed_before_a_store_error_are_reported(
    history: Path, tmp_path: Path, approved: Approved
) -> None:
    assert spotctl("prices", "import", history).code == 0
    (tmp_path / "home" / "prices" / "manifest.json").write_text('{"format": 9}')
    ended = spotctl("prices", "import", history, history, "--json")
    assert len(ended.json["files"]) == 1
    approved(ended)


def test_a_reader_may_stop_early(imported: Ended) -> None:
    assert imported.code == 0
    command = (
        f"{sys.executable} -c 'from spotctl.cli.app import main; main()' lab prices export local | "
        "head -n 1"
    )
    ran = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_price_of_moving_data_is_dated_and_has_a_source(approved: Approved) -> None:
    moved = spotctl(
        "lab", "prices", "egress", "aws/us-east-1", "gcp/us-central1", "--gb", "500", "--json"
    ).json
    assert moved["usd"] == pytest.approx(400 * 0.09)
    assert moved["as_of"] == "2026-01-01T00:00:00Z"
    assert (
        "$36.00 for 500 GB"
        in spotctl("lab", "prices", "egress", "aws/us-east-1", "internet", "--gb", "500").out
    )
    approved(spotctl("lab", "prices", "egress", "aws", "internet"))


def test_a_file_cannot_command_the_terminal(tmp_path: Path) -> None:
    bad = GOOD.replace("0.0162", "\x1b]0;owned\x07").replace("c1.medium", "\x1b[2J")
    path = written(
        tmp_path / "evil\x1b[31m.csv", HEADER.replace("product", "product"), *[bad] * 40, GOOD
    )
    ended = spotctl("prices", "import", path)
    assert "\x1b" not in ended.out + ended.err
    assert "and 20 more bad rows (--json lists all)" in ended.err
    assert len(spotctl("prices", "import", path, "--json").json["files"][0]["bad"]) == 40
    assert "\x1b" not in spotctl("prices", "import", tmp_path / "none\x1b[31m.csv").err
    assert "\x1b" not in spotctl("lab", "prices", "sql", "select chr(27) || '[31m' as red").out
    assert "\x1b" not in spotctl("prices", "show", "aws/\x1b[31m/x/y").err


@pytest.mark.usefixtures("imported")
@pytest.mark.parametrize(
    ("name", "begins"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml"), ("p.html", b"<!doctype html>")]
)
def test_plot_draws_in_the_format_of_the_name(tmp_path: Path, name: str, begins: bytes) -> None:
    ended = spotctl("lab", "prices", "plot", "aws/*/*/*", "--out", tmp_path / name)
    assert (ended.code, ended.err) == (0, f"plotted 1 markets to {tmp_path / name}\n")
    content = (tmp_path / name).read_bytes()
    assert content.startswith(begins)
    if name == "p.html":
        assert b"src=" not in content
        assert MARKET.encode() in content
