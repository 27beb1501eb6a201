"""The name of an environment on a machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from spotctl.agent.container import named_packages
from spotctl.agent.container.named_packages import NamedPackages, driver
from spotctl.agent.container.payload import NodeTask

NAMED = NamedPackages("requirements", "abc", "requirements.txt")


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31", "550"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release", "580"),
        ("", ""),
    ],
)
def test_another_major_version_of_the_driver_needs_another_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, major: str
) -> None:
    usual = NAMED.key
    file = tmp_path / "version"
    file.write_text(text)
    monkeypatch.setattr(named_packages, "_DRIVER", file)
    assert driver() == major
    assert (NAMED.key == usual) is (major == "")


def test_only_what_decides_about_the_content_is_in_the_name() -> None:
    assert NAMED.key == replace(NAMED, store="s3://bucket/job", optional=True).key
    assert NAMED.key != replace(NAMED, digest="abd").key != replace(NAMED, python="3.12").key


def test_a_task_has_it_as_it_was_and_earlier_agents_read_tasks_without() -> None:
    task = NodeTask("run", packages=NAMED)
    assert NodeTask.from_json(task.to_json()) == task
    assert "packages" not in NodeTask("run").to_json()
