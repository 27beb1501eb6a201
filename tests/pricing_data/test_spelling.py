"""Names that were probably meant."""

from __future__ import annotations

from itertools import product

import pytest

from pricing_data.spelling import closest, typing_errors


@pytest.mark.parametrize(
    ("written", "known", "meant"),
    [
        ("us-esat-1", ("us-west-1", "us-east-1", "us-east-2"), ["us-east-1"]),
        ("us-est-1", ("us-west-1", "us-east-1"), ["us-east-1"]),
        ("c4.2xlareg", ("c4.xlarge", "c4.2xlarge", "c4.4xlarge"), ["c4.2xlarge"]),
        ("proteous", ("proteus", "standard"), ["proteus"]),
        ("elephant", ("proteus", "standard"), []),
        ("anything", (), []),
    ],
)
def test_the_name_with_the_fewest_typing_errors_comes_first(
    written: str, known: tuple[str, ...], meant: list[str]
) -> None:
    assert closest(written, known) == meant


def _one_error_away(word: str) -> set[str]:
    cuts = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    return (
        {a + b[1:] for a, b in cuts if b}
        | {a + c + b for (a, b), c in product(cuts, "ab")}
        | {a + c + b[1:] for (a, b), c in product(cuts, "ab") if b}
        | {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    )


def test_typing_errors_are_the_fewest_single_corrections() -> None:
    words = ["".join(letters) for length in range(4) for letters in product("ab", repeat=length)]
    for one, other in product(words, words):
        expected = 0 if one == other else 1 if other in _one_error_away(one) else None
        found = typing_errors(one, other)
        assert found == expected if expected is not None else found > 1
