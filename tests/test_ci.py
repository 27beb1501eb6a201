"""The programs in .ci: how tests of several reports are counted, and what an audit without answers
says.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HERE = "tests.test_ci"
WHOLE_MODULE = '<skipped message="collection skipped">'
BARE = f"""
<testsuites><testsuite>
<testcase classname="{HERE}" name="test_a" />
<testcase classname="{HERE}" name="test_b[x-1]"><skipped message="needs sshd" /></testcase>
<testcase classname="{HERE}.TestAll" name="test_c"><skipped message="needs a card" /></testcase>
<testcase classname="{HERE}" name="test_d"><failure /></testcase>
<testcase classname="{HERE}" name="test_d" />
<testcase classname="" name="tests.test_lock">{WHOLE_MODULE}('f', 1, 'Skipped: no torch')</skipped></testcase>
<testcase classname="" name="tests.test_docs">{WHOLE_MODULE}('f', 1, 'Skipped: no lamp')</skipped></testcase>
</testsuite></testsuites>"""
WITH_TOOLS = f"""
<testsuites><testsuite>
<testcase classname="{HERE}" name="test_b[x-1]" />
<testcase classname="{HERE}.TestAll" name="test_c"><skipped message="needs a card" /></testcase>
<testcase classname="tests.test_lock" name="test_e" />
<testcase classname="tests.test_lock" name="test_f"><error /></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def reports(tmp_path: Path) -> list[str]:
    for name, text in (("bare", BARE), ("tools", WITH_TOOLS)):
        (tmp_path / f"{name}.xml").write_text(text.strip(), encoding="utf-8")
    return [str(tmp_path / "bare.xml"), str(tmp_path / "tools.xml")]


def run(program: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(ROOT / ".ci" / program), *words]
    return subprocess.run(
        line, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )


def test_a_test_that_one_pass_skipped_and_another_ran_counts_once_as_run(
    reports: list[str],
) -> None:
    assert run("count.py", *reports).stdout.splitlines() == [
        "not run: needs a card",
        "  tests/test_ci.py::TestAll::test_c",
        "not run: no lamp",
        "  tests/test_docs.py",
        "4 passed, 1 failed, 2 skipped",
    ]


def test_the_skipped_are_named_as_pytest_takes_them(reports: list[str]) -> None:
    assert run("count.py", "--skipped", reports[0]).stdout.splitlines() == [
        "tests/test_ci.py::TestAll::test_c",
        "tests/test_ci.py::test_b[x-1]",
        "tests/test_docs.py",
        "tests/test_lock.py",
    ]


FOUND = '{"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}'
CLEAN = '{"name": "b", "version": "1", "vulns": []}'
SKIPPED = '{"name": "c", "skip_reason": "Dependency not found: c (1)"}'


@pytest.mark.parametrize(
    ("packages", "code", "last"),
    [
        ([CLEAN], 0, "CLEAN: none of 1 packages has a known advisory"),
        ([CLEAN, FOUND], 1, "VULNERABLE: 1 of 2 packages have known advisories"),
        ([CLEAN, SKIPPED], 3, "COULD NOT CHECK 1 of 2 packages: Dependency not found (1 packages)"),
        ([SKIPPED, FOUND], 1, "COULD NOT CHECK 1 of 2 packages: Dependency not found (1 packages)"),
        ([], 3, "COULD NOT CHECK: no advisories could be reached: no route"),
    ],
    ids=["clean", "vulnerable", "one not looked up", "both", "no answer"],
)
def test_an_audit_without_answers_is_not_a_clean_one(
    tmp_path: Path, packages: list[str], code: int, last: str
) -> None:
    """In place of pip-audit, which is installed for an audit, stands a program that says what it
    would.
    """
    answer = f'{{"dependencies": [{", ".join(packages)}]}}' if packages else ""
    ends = f"import sys; print({answer!r}); sys.exit('' if {bool(packages)} else 'no route')"
    (tmp_path / "pip_audit.py").write_text(ends, encoding="utf-8")
    ended = run("audit.py", "some.lock", PYTHONPATH=str(tmp_path))
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (code, last), ended.stderr
