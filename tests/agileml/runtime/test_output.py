"""What nodes print, on its way through a file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agileml.runtime import output
from agileml.runtime.output import MAX_BYTES, OutputTail, Printed, show


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "node.out"
    path.touch()
    return path


def append(file: Path, content: bytes) -> None:
    with file.open("ab") as out:
        out.write(content)


def test_complete_lines_are_taken_once(file: Path) -> None:
    tail = OutputTail(file)
    append(file, b"one\ntwo\nthr")
    assert tail.take() == "one\ntwo\n"
    assert tail.take() == ""
    append(file, b"ee\nfour")
    assert tail.take() == "three\n"
    assert tail.take(last=True) == "four"
    tail.close()


def test_a_progress_bar_is_lines(file: Path) -> None:
    tail = OutputTail(file)
    append(file, b"10%\r20%\r30")
    assert tail.take() == "10%\n20%\n"
    append(file, b"%\r\n")
    assert tail.take().splitlines() == ["30%"]
    tail.close()


def test_what_is_not_text_is_replaced(file: Path) -> None:
    tail = OutputTail(file)
    append(file, b"\xff\xfe\n")
    assert tail.take() == "\ufffd\ufffd\n"
    tail.close()


def test_of_too_much_output_the_latest_is_taken(file: Path) -> None:
    tail = OutputTail(file)
    append(file, b"x" * 7 + b"\n" * MAX_BYTES)
    assert tail.take() == "... 7 bytes left out\n" + "\n" * MAX_BYTES
    append(file, b"y" * MAX_BYTES)
    # A line that is too long is passed on in pieces.
    assert tail.take() == "y" * MAX_BYTES
    tail.close()


def test_a_large_file_is_emptied(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "LARGEST_FILE", 10)
    tail = OutputTail(file)
    append(file, b"0123456789\n")
    assert tail.take() == "0123456789\n"
    assert file.stat().st_size == 0
    append(file, b"next\n")
    assert tail.take() == "next\n"
    tail.close()


def test_lines_are_shown_with_the_name_of_their_node(capsys: pytest.CaptureFixture[str]) -> None:
    show(Printed("t1", "one\ntwo\n"))
    assert capsys.readouterr() == ("", "[t1] one\n[t1] two\n")


CAPTURED = """
import os, sys
from agileml.runtime.output import captured
with captured() as (path, _):
    print("from python")
    os.system("echo from a child")
    print("error", file=sys.stderr)
    content = path.read_text()
print("afterwards", content.split("\\n"), path.exists())
"""


def test_everything_that_a_process_prints_is_captured() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", CAPTURED],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "afterwards ['from python', 'from a child', 'error', ''] False\n"
    assert done.stderr == ""
