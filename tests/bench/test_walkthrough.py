from __future__ import annotations

import pytest

from bench.walkthrough import ROOT, commands

PAGE = """\
    pip install '.[torch]'

```sh cloud
spotctl gc
```

```sh slow
spotctl plan a.yaml
```
"""


@pytest.mark.parametrize("install", [False, True])
def test_nothing_is_typed_that_needs_a_cloud(install: bool) -> None:
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    typed = list(commands(page, install=install))
    for clouds in (
        "spotctl try aws --region us-east-1",
        "spotctl launch examples/pytorch/aws.yaml",
        "spotctl gc",
    ):
        assert clouds in page
        assert clouds not in typed
    assert "spotctl launch examples/pytorch/job.yaml --yes" in typed


def test_each_line_of_an_installation_is_typed_once() -> None:
    assert list(commands(PAGE, install=True)) == ["pip install '.[torch]'", "spotctl plan a.yaml"]
    assert list(commands(PAGE, install=False)) == ["spotctl plan a.yaml"]
