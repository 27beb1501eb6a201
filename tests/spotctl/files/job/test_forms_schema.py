"""The schema of job files: what editors know of them, and that every job in the documents is
right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from spotctl.files.job.reader import restored, schema
from spotctl.files.yaml_file import parse
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.files.refused_jobs import CASES

ROOT = Path(__file__).parents[4]
EDITOR = jsonschema.Draft202012Validator(schema())


def test_the_schema_is_one_and_explains_every_key() -> None:
    found = spotctl("schema").json
    jsonschema.Draft202012Validator.check_schema(found)
    assert found == schema()
    parts = [found, *found["$defs"].values()]
    assert len(parts) == 13
    for part in parts:
        assert part["description"]
        assert part["additionalProperties"] is False
        for key, value in part["properties"].items():
            assert value["description"], key
            assert value["examples"], key
            for example in value["examples"]:
                jsonschema.Draft202012Validator({**value, "$defs": found["$defs"]}).validate(
                    example
                )


def test_a_key_is_explained_with_what_is_below_it(approved: Approved) -> None:
    assert spotctl("schema", "every").out.startswith(
        "parallel.elastic.every: Updates between two of these copies"
    )
    ended = spotctl("schema", "checkpoint")
    assert "checkpoint.path: A folder that outlives every machine." in ended.out
    assert "    checkpoint: {every: auto}\n" in ended.out
    assert [*spotctl("schema", "queue", "--json").json] == ["queue", "queue.policy", "queue.weight"]
    approved(spotctl("schema", "deadlin"))


# What no schema can say: that numbers are in order, that files are there, that names fit each
# other.
BEYOND_SCHEMAS = (
    "not finite",
    "is no command that",
    "contains a NUL byte",
    "is set by each machine",
    "ends below",
    "allows no machine",
    "begins below",
    "not a built-in",
    "there is no ",
    "mf has no",
    "rank is 0",
    "real clouds",
    "not a region of",
    "reach each other at one port",
    "cannot rent others",
    "none of the regions",
    "or longer than",
    "not above 0",
    "is also in env",
    "as a-b does",
    "as env or secrets do",
    "matches none of",
    "is for clouds",
    "is not one of clouds",
    "is 0; expected at least 1",
    "contradicts nodes",
    "is never written",
    "needs a checkpoint, from which",
    "is for a command with several nodes",
    "and resources.types is",
    "placement: applies to cloud machines",
)


# A parser takes the last of two keys that are the same, so that no schema sees both.
UNREAD = ("not YAML", "another document", "duplicate key", "aliases", "its tag")
PARSED = [case for case in CASES if not any(words in case[1] for words in UNREAD)]


@pytest.mark.parametrize(("text", "message"), PARSED, ids=[message[:60] for _, message in PARSED])
def test_editors_refuse_what_is_refused_wherever_a_schema_can_say_it(
    text: str, message: str
) -> None:
    refused = not EDITOR.is_valid(parse(text, Path("job.yaml")).content)
    assert refused is not any(words in message for words in BEYOND_SCHEMAS)


def documented() -> Iterator[tuple[str, str]]:
    """Job files of the documents and of the examples.

    Those of write-a-cloud.md need its cloud, which is not installed here: test_toy_cloud.py runs
    them.
    """
    without = ROOT / "docs" / "internals" / "write-a-cloud.md"
    for page in (ROOT / "README.md", *sorted(set(ROOT.glob("docs/**/*.md")) - {without})):
        for found in re.finditer(
            r"^```ya?ml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL
        ):
            yield f"{page.name}:{page.read_text().count(chr(10), 0, found.start()) + 1}", found[1]
    for file in ROOT.glob("examples/**/*.yaml"):
        yield file.name, file.read_text()
    yield "starter_job.yaml", (ROOT / "spotctl" / "files" / "job" / "starter_job.yaml").read_text()


def jobs_documented() -> Iterator[tuple[str, Any]]:
    for name, text in documented():
        content = parse(text, Path(name)).content
        if isinstance(content, dict) and "kind" in content:
            yield name, content


@pytest.mark.parametrize(
    ("name", "content"), [pytest.param(*job, id=job[0]) for job in jobs_documented()]
)
# Whatever YAML holds.
def test_every_job_that_is_shown_is_right(name: str, content: Any) -> None:  # noqa: ANN401
    restored(content, Path(name))
    EDITOR.validate(content)
