"""YAML with its lines: what plain words mean, where parts are, and what is refused before anybody looks at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.errors import BadRequest
from spotctl.files.yaml_file import Loc, parse, read

FILE = Path("file.yaml")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("10:30", "10:30"),
        ("06:00", "06:00"),
        ("no", "no"),
        ("on", "on"),
        ("2026-01-20", "2026-01-20"),
        ("007", "007"),
        ("1_000", "1_000"),
        ("12345678901234567890", "12345678901234567890"),
        ("8..", "8.."),
        ("true", True),
        ("7", 7),
        ("-0.5", -0.5),
        ("1e3", 1000.0),
        ("1.5e-3", 0.0015),
        (".inf", float("inf")),
        ("~", None),
        ("", None),
    ],
)
def test_plain_words_are_those_of_yaml_1_2(word: str, value: object) -> None:
    content = parse(f"key: {word}", FILE).content
    assert content == {"key": value}
    assert isinstance(content, dict)
    assert type(content["key"]) is type(value)


TEXT = """\
# a remark
base: &base {a: 1}
list:
  - x
  - deep:
      key: 1
long: |
  first
merged:
  <<: *base
  b: 2
  a: 3
"""


@pytest.mark.parametrize(
    ("loc", "line"),
    [
        ((), 1),
        (("base", "a"), 2),
        (("list",), 3),
        (("list", 0), 4),
        (("list", 1, "deep", "key"), 6),
        (("long",), 7),
        (("merged", "b"), 11),
        (("merged", "a"), 12),
        # What is not there is looked for where it should be.
        (("list", 1, "deep", "none"), 5),
        (("list", 7), 3),
        (("none", "at", "all"), 1),
    ],
)
def test_every_part_has_its_line(loc: Loc, line: int) -> None:
    assert parse(TEXT, FILE).line(loc) == line


def test_what_was_never_a_file_is_all_on_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    empty = read(tmp_path / "empty.yaml")
    assert (empty.content, empty.line(("a", 0))) == (None, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: {c: 1, c: 2}", "file.yaml:2: c: stands here again, after line 2; keep one"),
        ("a: 1\nb: 2\na: 3", "file.yaml:3: a: stands here again, after line 1; keep one"),
        ("a: b: c", "quotes"),
        ("a: *b", "file.yaml:1: is not YAML: found undefined alias 'b'; define it above"),
        ("a: {{b}}", "found unhashable key; put a text that begins with { or [ in quotes"),
        ("a: @b", "put a text that begins with it in quotes"),
        ("a: 'b\nc: d", r"file.yaml:2: is not YAML: while scanning a quoted scalar, found unexpected end of stream \("),
    ],
)
def test_what_is_no_yaml_is_one_line_with_a_cure(text: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message.replace("{ or [", r"\{ or \[")) as refused:
        parse(text, FILE)
    assert "\n" not in str(refused.value)


def test_what_refers_to_itself_does_not_hang() -> None:
    content = parse("a: &a [*a]", FILE).content
    assert isinstance(content, dict)
    assert content["a"][0] is content["a"]
