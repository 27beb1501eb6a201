"""Small JSON files that are replaced while others read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.agent.errors import BrokenProtocol
from spotctl.agent.files import Watched, replace_json


def test_a_file_is_parsed_again_only_when_it_was_replaced(tmp_path: Path) -> None:
    path, parsed = tmp_path / "lease.json", list[int]()

    def parse(content: dict[str, int]) -> int:
        parsed.append(content["until"])
        return content["until"]

    watched = Watched(path, parse)
    assert watched.value() is None
    replace_json(path, {"until": 1})
    assert [watched.value(), watched.value()] == [1, 1]
    replace_json(path, {"until": 20}, lasting=True)
    assert watched.value() == 20
    assert parsed == [1, 20]
    path.unlink()
    assert watched.value() is None


@pytest.mark.parametrize("content", ["{", "[]", '{"since": 1}'])
def test_what_is_not_valid_is_named_with_its_file(content: str, tmp_path: Path) -> None:
    path = tmp_path / "lease.json"
    path.write_text(content)
    with pytest.raises(BrokenProtocol, match=r"lease\.json: is not valid"):
        Watched(path, lambda read: read["until"]).value()
