from __future__ import annotations

import os
import shlex
import subprocess
from datetime import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from spotctl.home.errors import BadRequest
from spotctl.nightly.schedulers import Crontab, block, block_of, with_block, without_block

tables = st.binary(max_size=60).map(lambda text: text.replace(b"\0", b"") + b"\n") | st.just(b"")
names = st.sampled_from(["a", "a-b", "ab", "a-b-2"])
LINE = shlex.join(["/bin/echo", "it's 100% $HOME", "a b"])


@given(table=tables, name=names)
def test_other_lines_are_unchanged(table: bytes, name: str) -> None:
    installed = with_block(table, name, block(name, time(2), LINE))
    assert installed.startswith(table)
    assert without_block(installed, name) == table
    assert with_block(installed, name, block(name, time(2), LINE)) == installed


@given(table=tables, first=names, second=names, below=tables)
def test_blocks_are_independent(table: bytes, first: str, second: str, below: bytes) -> None:
    one, other = (block(name, time(2), LINE) for name in (first, second))
    both = with_block(with_block(table, first, one), second, other) + below
    changed = with_block(both, first, block(first, time(3, 5), LINE))
    assert changed.count(b"5 3 * * *") == 1 + table.count(b"5 3 * * *") + below.count(b"5 3 * * *")
    gone = without_block(changed, first)
    assert not block_of(gone, first)
    assert bool(block_of(gone, second)) is (first != second)
    if first != second:
        assert gone == table + other + below


def as_cron_reads(line: bytes) -> str:
    """What cron passes to the shell: the sixth field up to the first unescaped %."""
    command, passed = line.split(b" ", 5)[5], b""
    while command:
        if command.startswith(b"\\%"):
            passed, command = passed + b"%", command[2:]
        elif command.startswith(b"%"):
            break
        else:
            passed, command = passed + command[:1], command[1:]
    return os.fsdecode(passed)


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0\n\r", exclude_categories=["Cs"]), min_size=1),
        min_size=1,
    )
)
def test_cron_passes_the_command_unchanged(words: list[str]) -> None:
    try:
        lines = block("a", time(2), shlex.join(words))
    except BadRequest:
        return
    assert shlex.split(as_cron_reads(lines.splitlines(keepends=True)[1].rstrip(b"\n"))) == words


def test_lines_that_cron_would_truncate_are_refused() -> None:
    with pytest.raises(BadRequest, match="too long for cron"):
        block("a", time(2), "/" + "x" * 1000)
    with pytest.raises(BadRequest, match="line break"):
        block("a", time(2), "/a\nb")


def test_a_block_without_its_end_is_not_touched() -> None:
    broken = block("a", time(2), LINE).splitlines(keepends=True)[0] + b"1 2 3 4 5 theirs\n"
    with pytest.raises(BadRequest, match="crontab -e"):
        without_block(broken, "a")


CRONTAB_SUBSTITUTE = """\
#!/bin/sh
case $1 in
-l) [ -f "$TABLE" ] && cat "$TABLE" || { echo "no crontab for me" >&2; exit 1; };;
-r) rm "$TABLE";;
-) cat > "$TABLE.new"; [ -z "$REFUSED" ] || { echo '"-":1: bad minute' >&2; exit 1; }; mv "$TABLE.new" "$TABLE";;
esac
"""


@pytest.fixture
def crontab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Crontab:
    """A substitute for `crontab` that works on a file in a temporary folder."""
    program = tmp_path / "crontab"
    program.write_text(CRONTAB_SUBSTITUTE)
    program.chmod(0o755)
    monkeypatch.setenv("TABLE", str(tmp_path / "table"))
    return Crontab(str(program))


def test_reading_writing_and_removing_a_crontab(crontab: Crontab, tmp_path: Path) -> None:
    assert crontab.read() == b""
    crontab.write(b"", b"\xff\n")
    assert crontab.read() == b"\xff\n"
    with pytest.raises(BadRequest, match="changed by another program"):
        crontab.write(b"other\n", b"")
    crontab.write(b"\xff\n", b"")
    assert not (tmp_path / "table").exists()


def test_errors_of_crontab_are_reported(crontab: Crontab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFUSED", "1")
    with pytest.raises(BadRequest, match="bad minute"):
        crontab.write(b"", b"x\n")
    with pytest.raises(BadRequest, match="install cron"):
        Crontab("/nowhere/crontab").read()


def test_the_substitute_behaves_like_crontab(crontab: Crontab) -> None:
    ran = subprocess.run([crontab.program, "-l"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (1, "no crontab for me\n")
