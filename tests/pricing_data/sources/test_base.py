"""Bad records of an answer are counted and shown, and the good ones are kept."""

from __future__ import annotations

import pytest

from pricing_data.errors import BadInput, IncompleteAnswer
from pricing_data.sources.base import Rejects


def halved(text: str) -> int | None:
    """Half of an even number; None for an odd one."""
    if not text.isdecimal():
        raise BadInput(f"not a\n number: {text[-3:]}")
    return None if int(text) % 2 else int(text) // 2


def test_the_good_records_are_yielded_and_the_first_bad_one_is_shown() -> None:
    rejects = Rejects("halves of numbers")
    assert list(rejects.good(halved, ["4", "x", "0", "7", "y", "8"])) == [2, 0, 4]
    with pytest.raises(IncompleteAnswer) as raised:
        rejects.report()
    assert str(raised.value) == (
        "halves of numbers: 2 records left out, the others were kept;"
        " first: x: not a number: x; the next fetch retries them"
    )


def test_without_rejects_nothing_is_reported() -> None:
    rejects = Rejects("halves of numbers")
    assert list(rejects.good(halved, ["1", "2"])) == [1]
    rejects.report()
    assert (rejects.count, rejects.example) == (0, "")


def test_rejects_of_several_pages_are_counted_together() -> None:
    rejects = Rejects("halves of numbers")
    rejects.add("one\n more")
    assert list(rejects.good(halved, ["x"])) == []
    assert (rejects.count, rejects.example) == (2, "one more")


def test_a_rejected_record_is_shown_by_its_name() -> None:
    rejects = Rejects("halves of numbers")
    list(rejects.good(halved, ["x"], lambda text: f"letter {text}"))
    assert rejects.example == "letter x: not a number: x"


def test_a_long_bad_record_is_shortened_to_one_line_with_its_reason() -> None:
    rejects = Rejects("halves of numbers")
    list(rejects.good(halved, ["<html>\n" * 10_000 + "end"]))
    assert rejects.example.startswith("<html> <html>")
    assert rejects.example.endswith("...: not a number: end")
    assert len(rejects.example) < 300


def test_a_long_reason_is_cut() -> None:
    rejects = Rejects("halves of numbers")
    rejects.add("x" * 10_000)
    assert len(rejects.example) < 500


def test_only_bad_input_leaves_a_record_out() -> None:
    rejects = Rejects("halves of numbers")
    with pytest.raises(ValueError, match="invalid literal"):
        list(rejects.good(int, ["x"]))
    assert rejects.count == 0
