"""Option values with several parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.home.errors import BadRequest
from spotctl.lab.option_values import amounts, found_at, names, numbers


def test_lists_keep_their_order_and_no_value_twice() -> None:
    assert names("proteus, bound,,proteus") == ("proteus", "bound")
    assert numbers("--slack", "2,1.5,2", "1,2") == (2.0, 1.5)
    assert amounts("--workers", "v100=2, k80=0.5", "v100=1") == {"v100": 2.0, "k80": 0.5}


def test_what_is_no_list_of_numbers_is_refused_with_an_example() -> None:
    with pytest.raises(BadRequest, match=r"--slack '1;2' is not a list of numbers \(write 1,2\)"):
        numbers("--slack", "1;2", "1,2")


@pytest.mark.parametrize("text", ["v100", "=2", "v100=-1", "v100=many", "v100=inf", "k80=1,k80=2"])
def test_each_amount_is_a_name_and_a_number_once(text: str) -> None:
    with pytest.raises(BadRequest, match="is not TYPE=NUMBER"):
        amounts("--workers", text, "v100=1")


def test_a_file_is_looked_for_here_and_then_next_to_the_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    scenario, named = tmp_path / "scenario.yaml", Path("prices.csv")
    assert found_at(scenario, named) == tmp_path / "prices.csv"
    named.write_text("")
    assert found_at(scenario, named) == named
