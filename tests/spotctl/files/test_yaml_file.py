"""YAML files: what plain words mean, the lines of parts, bounds, and one-line errors."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from spotctl.files import yaml_file
from spotctl.files.yaml_file import MAX_BYTES, MAX_PARTS, Loc, parse, read
from spotctl.home.errors import BadRequest

FILE = Path("file.yaml")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("10:30", "10:30"),
        ("06:00", "06:00"),
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("0x10", "0x10"),
        ("0o17", "0o17"),
        ("1.0.0", "1.0.0"),
        ("2026-01-20T10:00:00Z", "2026-01-20T10:00:00Z"),
        ("1.0", 1.0),
        ("null", None),
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
        # A missing part has the line of what should contain it.
        (("list", 1, "deep", "none"), 5),
        (("list", 7), 3),
        (("none", "at", "all"), 1),
    ],
)
def test_every_part_has_its_line(loc: Loc, line: int) -> None:
    assert parse(TEXT, FILE).line(loc) == line


@st.composite
def tagged(draw: st.DrawFn) -> str:
    """A value with a tag that may not fit it, as a value, an item or a key."""
    tag = draw(
        st.sampled_from(
            ["int", "float", "bool", "null", "str", "merge", "timestamp", "binary", "set", "omap"]
        )
    )
    value = draw(
        st.text(st.characters(exclude_categories=["C"]), max_size=6).map(json.dumps)
        | st.sampled_from(WORDS)
    )
    return draw(st.sampled_from(["a: !!{} {}", "- !!{} {}", "? !!{} {}\n: 1"])).format(tag, value)


WORDS = [
    "",
    "~",
    "1",
    "-1",
    "1.5",
    "1:2",
    "0x",
    "1e3",
    "true",
    "yes",
    "<<",
    "=",
    "[1]",
    "{a: 1}",
    "2026-01-01",
]


@settings(max_examples=300)
@given(tagged())
def test_a_tag_is_read_as_json_can_hold_it_or_refused(text: str) -> None:
    with suppress(BadRequest):
        json.dumps(parse(text, FILE).content)


def test_an_empty_file_has_no_content(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    empty = read(tmp_path / "empty.yaml")
    assert (empty.content, empty.line(("a", 0))) == (None, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: {c: 1, c: 2}", "file.yaml:2: c: duplicate key, first on line 2; keep one"),
        ("a: 1\nb: 2\na: 3", "file.yaml:3: a: duplicate key, first on line 1; keep one"),
        ("a: b: c", "quotes"),
        ("a: *b", "file.yaml:1: is not YAML: found undefined alias 'b'; define it above"),
        ("a: {{b}}", "found unhashable key; put a value that begins with { or [ in quotes"),
        ("a: @b", "put a value that begins with it in quotes"),
        (
            "a: 1\nb: !!int nightly",
            "file.yaml:2: 'nightly' does not fit its tag !!int; correct it, or remove the tag",
        ),
        ("a: !!float ''", "file.yaml:1: '' does not fit its tag !!float"),
        ("a: !!bool yes", "file.yaml:1: 'yes' does not fit its tag !!bool"),
        ("!!int x: 1", "file.yaml:1: 'x' does not fit its tag !!int"),
        (
            "a: !!timestamp 2026-13-45",
            "the tag 'tag:yaml.org,2002:timestamp'; remove the tag, or put a value",
        ),
        ("a: !!python/name:os.system", "could not determine a constructor for the tag"),
        ("a: !!set {b}", "the tag 'tag:yaml.org,2002:set'; remove the tag"),
        ("a: <<", "merge'; put << in quotes"),
        ("<<: x", r"but found scalar; write <<: \*NAME, where &NAME marks a mapping"),
        (
            'a: 1\nb: "\\ud800"',
            r"file.yaml:2: contains half a character, such as \\ud800; delete it",
        ),
        (
            'a: 1\nb: "\\UFFFFFFFF"',
            r"file.yaml:2: is not YAML: an escape such as \\U00110000 is no character",
        ),
        (
            "a: 'b\nc: d",
            r"file.yaml:2: is not YAML: while scanning a quoted scalar, found unexpected end of stream \(",
        ),
    ],
)
def test_a_syntax_error_is_one_line_with_a_cure(text: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message.replace("{ or [", r"\{ or \[")) as refused:
        parse(text, FILE)
    assert "\n" not in str(refused.value)


def test_texts_are_as_written() -> None:
    file = parse(
        "base: &base {A: no}\nenv:\n  <<: *base\n  B: 1.0\n  C: True\n  D: 0x10\n  E:\n  F: [x]\n",
        FILE,
    )
    assert file.texts("env") == {"A": "no", "B": "1.0", "C": "True", "D": "0x10"}
    assert file.texts("none") == parse("", FILE).texts("env") == {}


def aliases(levels: int, width: int) -> str:
    """Lists of the list before: `width` to the power of `levels` texts."""
    lines = ["a0: &a0 text"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels + 1)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            aliases(9, 9),
            "file.yaml:6: expands to 66,430 parts through aliases; write it out without them",
        ),
        ("a: &a [*a]", "file.yaml:1: refers to itself through aliases; write it out without them"),
        (
            "a: 1\nb: &b {c: {d: *b}}",
            "file.yaml:2: refers to itself through aliases; write it out without them",
        ),
        # Merged keys multiply before they are a mapping.
        (
            "a0: &a0 {k: v}\n"
            + "\n".join(
                f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 10)
            ),
            "through aliases; write it out without them",
        ),
        (
            "a:\n- [" + "x, " * 3 * MAX_PARTS + "]",
            "file.yaml:2: has more than 20,000 parts up to here; remove some",
        ),
        (
            "- x\n" * 2 * MAX_PARTS,
            "file.yaml:20000: has more than 20,000 parts up to here; remove some",
        ),
        (
            "a:\n" + "- " * 200 + "x",
            "file.yaml:2: is nested deeper than 50 levels; write it in fewer levels",
        ),
        (
            aliases(60, 1),
            "file.yaml:52: is nested deeper than 50 levels through aliases; write it in fewer",
        ),
        (
            "# " + "x" * MAX_BYTES,
            "file.yaml: is larger than 1 MB; split it, or remove what is not needed",
        ),
    ],
    ids=[
        "aliases",
        "itself",
        "itself-below",
        "merged",
        "one-line",
        "many-lines",
        "deep",
        "deep-aliases",
        "large",
    ],
)
def test_a_file_beyond_the_bounds_is_refused_before_its_content_is_built(
    text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: object) -> None:
        raise AssertionError("no content is built from a refused file")

    monkeypatch.setattr(yaml_file._Loader, "construct_document", build)
    with pytest.raises(BadRequest) as refused:
        parse(text, FILE)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_no_more_of_a_large_file_is_read_than_the_bound(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    with pytest.raises(BadRequest, match="is larger than 1 MB"):
        read(file)


def test_aliases_within_the_bounds_are_read() -> None:
    content = parse(aliases(3, 9), FILE).content
    assert isinstance(content, dict)
    assert content["a3"][8][8] == ["text"] * 9
