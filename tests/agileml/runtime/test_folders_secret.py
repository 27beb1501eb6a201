"""The file with a job's secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from agileml.errors import BadInput
from agileml.runtime.folders import read_secret


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.touch(0o600)
    return path


def test_white_space_around_the_secret_does_not_count(path: Path) -> None:
    path.write_text("0123456789abcdef\n")
    assert read_secret(path) == b"0123456789abcdef"


@pytest.mark.parametrize(
    ("content", "message"), [("", "is empty"), (" \n", "is empty"), ("short", "has 5 bytes")]
)
def test_an_empty_or_short_secret_is_refused_with_the_cure(
    path: Path, content: str, message: str
) -> None:
    path.write_text(content)
    with pytest.raises(BadInput, match=f"{message}.*openssl rand -hex 32"):
        read_secret(path)


@pytest.mark.parametrize(
    ("mode", "warned"), [(0o600, False), (0o400, False), (0o644, True), (0o440, True)]
)
def test_a_secret_that_others_can_read_is_used_with_a_warning(
    path: Path, mode: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text("0123456789abcdef")
    path.chmod(mode)
    assert read_secret(path) == b"0123456789abcdef"
    assert [f"chmod 600 {path}" in message for message in caplog.messages] == [True] * warned


def test_a_missing_file_a_folder_and_a_large_file_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file; create one"):
        read_secret(tmp_path / "missing")
    with pytest.raises(BadInput, match="cannot be read: Is a directory"):
        read_secret(tmp_path)
    path.write_bytes(b"x" * 4096 + b"\n" + b"x" * 4096)
    with pytest.raises(BadInput, match="more than 4096 bytes"):
        read_secret(path)
