"""README and documentation: commands parse or run, job files are those of the examples, links lead
somewhere.

Of the pages, only blocks marked `sh` run here. `sh slow` marks launches that take minutes, `sh
cloud` what needs an account; SPOTCTL_DOCS=all runs the slow ones, too.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from typer.main import get_command

from bench.readme_recording import COMMAND, PICTURE, Screen, drawn, frames_of
from bidbrain.strategies.names import OF_JOBS, REGIONS
from spotctl.cli.app import app
from spotctl.home.config import setting_names
from tests.documented import assert_explained, reference
from tests.spotctl.command_line import spotctl

SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
SITE = [page for page in PAGES if page != README]
RUN = ("sh", "sh slow") if os.environ.get("SPOTCTL_DOCS") == "all" else ("sh",)
EXAMPLES = {"spirals": "examples/pytorch/job.yaml", "digits": "examples/trainers/digits.yaml"}


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """The fenced blocks of a page: what stands behind the fence, and the content."""
    return iter(
        re.findall(
            r"^```(\w[^\n]*)\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        )
    )


def commands(text: str) -> list[list[str]]:
    lines = [line.split("  #")[0].strip() for line in text.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("spotctl ")]


def runnable() -> list[tuple[str, list[str]]]:
    return [
        (page.name, words)
        for page in SITE
        for kind, text in blocks(page)
        if kind in RUN
        for words in commands(text)
    ]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(
        ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("checkpoints")
    )
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("clone")
def test_the_commands_of_the_pages_run() -> None:
    found = runnable()
    assert len(found) >= 5
    for page, words in found:
        ended = spotctl(*words)
        assert ended.code in (None, 0), f"{page}: spotctl {shlex.join(words)}: {ended.err}"


def test_every_command_in_the_documentation_exists_with_its_options() -> None:
    """Also those that need a cloud or a file: each is parsed as the command line would."""
    group = get_command(app)
    checked = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fenced = "".join(content for _, content in blocks(page))
        for words in commands(
            "\n".join(re.findall(r"^ {4}.*", text, re.MULTILINE)) + "\n" + fenced
        ):
            used = words[: words.index("&&")] if "&&" in words else words
            command, rest = (
                group,
                [re.sub(r"[\[\]]", "", word) for word in used if word not in ("\\", "...")],
            )
            while rest and rest[0] in getattr(command, "commands", {}):
                command = command.commands[rest.pop(0)]  # type: ignore[attr-defined]
            assert not hasattr(command, "commands") or not rest or rest[0].startswith("--"), (
                f"{page.name}: {words}"
            )
            known = {
                name for one in command.params for name in (*one.opts, *one.secondary_opts)
            } | {"--help"}
            options = (
                [word.split("=")[0] for word in rest[: rest.index("--")] if "--" in rest]
                if "--" in rest
                else rest
            )
            unknown = [
                word
                for word in options
                if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known
            ]
            assert not unknown, f"{page.name}: spotctl {shlex.join(words)}: {unknown}"
            checked += 1
    assert checked > 60


@pytest.mark.usefixtures("clone")
def test_the_readme_has_two_commands_to_copy_the_quick_start_and_the_tests() -> None:
    """`.ci/run` runs them by their number."""
    quick_start, tests = (text for kind, text in blocks(README) if kind == "sh")
    assert quick_start == "pip install . && spotctl launch examples/quickstart.yaml --yes\n"
    assert tests == "pip install '.[test]' && make check\n"


@pytest.mark.usefixtures("clone")
def test_the_job_file_of_the_readme_is_the_example() -> None:
    (shown,) = (text for kind, text in blocks(README) if kind == "yaml")
    file = (ROOT / EXAMPLES["spirals"]).read_text(encoding="utf-8")
    assert shown == re.sub(r"^#.*\n", "", file, flags=re.MULTILINE)
    plan = spotctl("plan", EXAMPLES["digits"], "--json")
    assert plan.code in (None, 0), plan.err


def test_the_pytorch_script_goes_on_where_it_stopped(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = clone / "examples" / "pytorch" / "train.py"
    monkeypatch.setenv("SPOTCTL_CHECKPOINT_DIR", str(clone / "kept"))
    torch.set_num_threads(1)  # as its job file does
    seconds, epochs = 0.0, list[int]()
    for _ in range(2):
        # One epoch more than before, which takes longer than this.
        monkeypatch.setenv("COMPUTE_SECONDS", str(seconds + 1e-6))
        runpy.run_path(str(script))
        saved = torch.load(clone / "kept" / "last.pt")
        seconds, epochs = saved["seconds"], [*epochs, saved["epoch"]]
    assert epochs == [1, 2]
    assert capsys.readouterr().out == "resuming at epoch 2\n"


def test_links_lead_to_files_of_the_repository() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_tests_that_pages_name_exist() -> None:
    code = {path.stem: path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    known = code.keys() | {
        name for text in code.values() for name in re.findall(r"def (test_\w+)", text)
    }
    named = {
        (page.name, name)
        for page in PAGES
        for name in re.findall(r"`(?:[\w/.]*/)?(test_\w+)", page.read_text())
    }
    assert len(named) > 10
    assert [(page, name) for page, name in sorted(named) if name not in known] == []
    for page in PAGES:
        for path, name in re.findall(r"`(tests/[\w/.]+)::(test_\w+)`", page.read_text()):
            assert f"def {name}(" in (ROOT / path).read_text(), f"{page.name}: {path}::{name}"


def test_the_recording_is_small_plays_by_itself_and_rests_on_what_the_launch_printed_last() -> None:
    picture = PICTURE.read_text(encoding="utf-8")
    assert len(picture) < 150_000
    root = ElementTree.fromstring(picture)
    lines = {
        text.attrib["id"]: "".join(text.itertext())
        for text in root.iter(f"{SVG}text")
        if "id" in text.attrib
    }
    frames = root.find(f".//{SVG}g[@class='film']")
    assert frames is not None
    shown = [[lines[line.attrib["href"][1:]] for line in frame] for frame in frames]
    assert all(frame[0] == f"$ {COMMAND}" for frame in shown[:2])
    last = "\n".join(shown[-1])
    assert re.search(r"quickstart-\w+: done", last)
    assert "0 still running" in last
    assert re.search(r"survived \d+ evictions", last)
    assert f"-{(len(shown) - 1) * int(root.attrib['height'])}px" in picture
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")


def test_a_recorded_terminal_shows_what_was_written_last() -> None:
    screen = Screen(columns=10, rows=3)
    screen.feed("one\r\ntwo\r\x1b[2K\x1b[32mTWO\x1b[0m!\r\nthree\r\n0123456789ab\r\n")
    text = ["".join(letter for letter, _ in line) for line in screen.shown]
    assert text == ["three", "0123456789", "ab"]
    screen.feed("\x1b[1A\x1b[2K\x1b[1A\x1b[2K\x1b[1mend\x1b[0m")
    assert [style for _, style in screen.shown[-1]] == ["b"] * 3


def test_the_recording_holds_still_where_many_lines_come_at_once() -> None:
    plan = "".join(f"line {number}\r\n" for number in range(10))
    received = [
        (0.0, "planning\r"),
        (1.0, plan),
        (2.0, "machines 1\r\n"),
        (60.0, "job: done (1 clock)\r\n"),
    ]
    frames = frames_of(received)
    assert [len(frame.lines) for frame in frames] == [1, 2, 11, 12, 13]
    assert frames[2].seconds > 3 * frames[1].seconds
    assert "quickstart.yaml --yes: job: done (1 clock)" in drawn(frames, 60.0)


def test_the_readme_counts_the_figures_of_the_page_of_papers() -> None:
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    rows = [
        row.split("|")[:6]
        for row in re.findall(r"^\| [^|]+ \|((?: *\d* *\|){6})$", page, re.MULTILINE)
    ]
    counts = [sum(int(cell.strip() or 0) for cell in column) for column in zip(*rows, strict=True)]
    said = (
        f"of {sum(counts)} figures of the papers behind it, {counts[0]} reproduced, {counts[1]} "
        "explained, "
    )
    said += f"{counts[2]} not explained"
    assert said in README.read_text(encoding="utf-8")


def test_every_page_is_in_the_table_of_contents() -> None:
    """The build of the site fails for any other."""
    sections = runpy.run_path(str(ROOT / "docs" / "conf.py"))["PAGES"].values()
    listed = {
        page
        for pages in sections
        for page in pages.split()
        if not page.startswith(("generated/", "decisions/"))
    }
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert listed == pages | {
        f"internals/{page.stem}" for page in (ROOT / "docs" / "internals").iterdir()
    }


def test_the_reference_has_every_command_and_every_key() -> None:
    pages = reference()
    listed = "\n".join(pages["commands"]())
    for name in (
        "launch",
        "plan",
        "prices fetch",
        "report cost",
        "nightly install",
        "lab backtest run",
    ):
        assert f"\n## spotctl {name}\n" in listed
    assert "| `--max-cost` | " in listed
    assert "| `spotctl_evictions_total` | counter | " in "\n".join(pages["metrics"]())
    keys = "\n".join(pages["job_file"]())
    assert all(
        f"| `{key}` | " in keys for key in ("name", "budget", "unwarned", "accelerators", "every")
    )


def test_every_setting_and_every_strategy_is_explained() -> None:
    pages = ("settings.md", "which-strategy.md")
    settings, strategies = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in pages)
    assert set(setting_names()) <= names_in_first_column(settings)
    assert {*OF_JOBS, REGIONS} <= names_in_first_column(strategies)


def names_in_first_column(page: str) -> set[str]:
    """What stands as code in the first cells of a page's tables, up to a colon."""
    cells = re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`:]+)", cell)}


def test_what_every_command_prints_as_json_has_a_table() -> None:
    """Most are made from what the command prints; those of commands that need a cloud are compared
    where these run.
    """
    assert reference()["without_table"]() == []


def test_every_field_of_json_has_a_meaning_where_it_is_written() -> None:
    """`make docs` fails for a field without one, and so does each test that runs such a command
    with `--json`.
    """
    defined = reference()
    for command, writer in defined["writers"]().items():
        known = defined["meanings"](writer)
        assert known, f"spotctl {command}: {writer} lists no fields"
        assert all(len(about) > 2 for about in known.values()), f"spotctl {command}: {writer}"
    for name, recorded in json.loads(
        (ROOT / "docs" / "json_of_clouds.json").read_text(encoding="utf-8")
    ).items():
        assert not defined["without_meaning"](recorded["writer"], recorded["answer"]), name


@pytest.mark.usefixtures("clone")
def test_a_field_without_a_meaning_is_found() -> None:
    answer = spotctl("plan", EXAMPLES["spirals"], "--json").json
    assert_explained(["plan"], answer)
    with pytest.raises(
        AssertionError, match=r"spotctl plan: .*plan_answers:ANSWER .*\['new', 'choice\[\].new'\]"
    ):
        assert_explained(["plan"], {"new": 1, "choice": [{"market": "a", "new": 2}]})


def test_the_fields_are_not_part_of_the_help() -> None:
    shown = spotctl("status", "--help").out
    assert "Example: spotctl status --json" in shown
    assert "Fields" not in shown
