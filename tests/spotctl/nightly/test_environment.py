"""Environment files of nights."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.home.errors import BadRequest
from spotctl.nightly.environment import missing, only_in_shell, read_file


def test_an_environment_file(tmp_path: Path) -> None:
    path = tmp_path / "environment"
    assert read_file(path) == {}
    path.touch(0o600)
    path.write_text("# comment\n\nA=1 = 2\n export B='x y'\nC=\"\nD=\n#E=5\n")
    variables = read_file(path)
    assert variables == {"A": "1 = 2", "B": "x y", "C": '"', "D": ""}
    assert missing(["A", "D", "E"], variables) == ["D", "E"]
    assert only_in_shell(
        {"AWS_PROFILE": "p", "A": "1", "SPOTCTL_HOME": "/h", "AZURE_X": ""}, variables
    ) == ["AWS_PROFILE"]
    path.write_text("A=1\nsecret value\n")
    with pytest.raises(BadRequest) as refused:
        read_file(path)
    assert "environment:2:" in str(refused.value)
    assert "secret value" not in str(refused.value)
