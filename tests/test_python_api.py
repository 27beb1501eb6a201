"""Every example of the page on the Python API is a script that runs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "python-api.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_examples_run(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "example.py"
    script.write_text(EXAMPLES[number])
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")


def test_the_page_has_an_example_of_each_package() -> None:
    imported = "\n".join(EXAMPLES)
    assert len(EXAMPLES) >= 3
    for package in ("spotctl", "agileml", "agileml.torch"):
        assert package in imported
