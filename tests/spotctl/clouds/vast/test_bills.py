"""The charges of the simulated Vast.ai, as its own client prints them, read as a bill."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from pricing_data.units import DAY, SECOND
from spotctl.clouds.bills import BadBill
from spotctl.home.installation import RUN_TAG
from spotctl.show.costs.bills.read import read_bill
from tests.servers.vast import KEY
from tests.spotctl.clouds.vast.official import official_client
from tests.spotctl.clouds.vast.world import RUN, World, order, world


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    """Two machines of a run, one of them back, and one of somebody else."""
    with world(tmp_path) as made, closing(made.provider()) as provider:
        machines = provider.create(order())
        made.market.order(
            made.market.hosts[5], 0.3, 20.0, {"image": "x", "label": "of somebody else"}
        )
        made.market.advance(1_800)
        provider.terminate([machines[0].id])
        yield made


def days_of(made: World) -> tuple[int, int]:
    """A day before and after all that was rented."""
    now = int(made.market.now())
    return now - 2 * 86_400, now + 86_400


def page(made: World, token: str = "") -> dict[str, Any]:
    since, until = days_of(made)
    query = {"select_filters": json.dumps({"day": {"gte": since, "lte": until}}), "limit": "2"}
    keys = {"Authorization": f"Bearer {KEY}"}
    query |= {"after_token": token} if token else {}
    answer = httpx.get(f"{made.server.url}/api/v0/charges/", params=query, headers=keys)
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()
    return content


def as_printed(*pages: dict[str, Any]) -> str:
    return "".join(json.dumps(one, indent=1, sort_keys=True) + "\n" for one in pages)


def test_pages_of_charges_are_lines_of_machines_and_of_their_run(
    made: World, tmp_path: Path
) -> None:
    first = page(made)
    last = page(made, first["next_token"])
    assert (first["count"], last["count"], last["next_token"]) == (2, 1, None)
    path = tmp_path / "charges.json"
    path.write_text(as_printed(first, last))
    bill = read_bill(path)
    assert (bill.provider, bill.has_tags) == ("vast", True)
    sums, runs = defaultdict[tuple[str, bool], Decimal](Decimal), dict[str, str]()
    for line in bill.lines:
        sums[line.resource, line.is_machine] += line.amount
        runs[line.resource] = line.run or ""
    for contract in made.market.contracts.values():
        billed = made.market.billed(contract)
        charged = (sums[f"vast:{contract.id}", True], sums[f"vast:{contract.id}", False])
        assert [float(usd) for usd in charged] == pytest.approx(billed, rel=1e-3)
        assert runs[f"vast:{contract.id}"] == (
            RUN[RUN_TAG] if contract.label != "of somebody else" else ""
        )
        day = int(contract.made * SECOND) // DAY * DAY
        assert {
            (line.begin, line.end) for line in bill.lines if line.resource == f"vast:{contract.id}"
        } == {(day, day + DAY)}


@pytest.mark.slow
def test_what_the_official_client_prints_is_the_same_bill(made: World, tmp_path: Path) -> None:
    client = official_client(made.server.url, tmp_path)
    since, until = map(str, days_of(made))
    words = ("show", "invoices-v1", "--charges", "-s", since, "-e", until, "-l", "2")
    first = client.ended(*words)
    assert first.returncode == 0, first.stderr
    last = client.ended(*words, "-t", json.loads(first.stdout)["next_token"])
    path = tmp_path / "charges.json"
    path.write_text(first.stdout + last.stdout)
    lines = read_bill(path).lines
    assert {line.resource for line in lines} == {
        f"vast:{number}" for number in made.market.contracts
    }
    assert sorted(line.run or "" for line in lines) == ["", "", *[RUN[RUN_TAG]] * 4]


def test_a_file_that_holds_no_charges_is_named(tmp_path: Path) -> None:
    path = tmp_path / "charges.json"
    path.write_text(as_printed({"next_token": None, "results": [{"type": "instance"}], "total": 1}))
    with pytest.raises(
        BadBill, match=r"charges\.json, line 1: results .* is not a list of charges"
    ):
        read_bill(path)
