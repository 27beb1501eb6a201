"""Checks of settings: what cannot work is one line that names it."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest

from agileml.errors import BadArgument, check_flag, check_number, check_whole


@pytest.mark.parametrize("value", [1, 5, np.int64(3)])
def test_whole_numbers_within_their_bounds_pass(value: object) -> None:
    check_whole("nodes", value, 1, 5)


@pytest.mark.parametrize("value", [0, 6, 2.0, True, "3", None])
def test_what_is_no_whole_number_within_them_is_named(value: object) -> None:
    with pytest.raises(BadArgument, match=r"^nodes is .*; it must be a whole number from 1 to 5$"):
        check_whole("nodes", value, 1, 5)


@pytest.mark.parametrize("value", [0, 0.5, np.float32(0.25)])
def test_numbers_within_their_bounds_pass(value: object) -> None:
    check_number("share", value, 0, 1)


@pytest.mark.parametrize("value", [-0.1, 1.1, nan, False, "0.5"])
def test_what_is_no_number_within_them_is_named(value: object) -> None:
    with pytest.raises(BadArgument, match=r"^share is .*; it must be a finite number from 0 to 1$"):
        check_number("share", value, 0, 1)


def test_a_bound_may_be_left_out_or_not_belong_to_it() -> None:
    check_number("seconds", inf, 0, finite=False)
    with pytest.raises(BadArgument, match="it must be a finite number of at least 0"):
        check_number("seconds", inf, 0)
    with pytest.raises(BadArgument, match="it must be a finite number above 0"):
        check_number("seconds", 0, 0, above=True)


def test_a_flag_is_true_or_false() -> None:
    check_flag("close", value=False)
    with pytest.raises(BadArgument, match="close is 1; it must be True or False"):
        check_flag("close", 1)
