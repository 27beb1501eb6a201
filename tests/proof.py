"""`python -m tests.proof` writes the records of full trials in tests/records into docs/proof.md."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parent / "records"
PAGE = Path(__file__).parents[1] / "docs" / "proof.md"
HEADING = "## Records\n"
_NONE = (
    "There is no record of a real account yet: nothing on this page has been shown outside of "
    "simulations."
)
_SIMULATED = (
    "On [clouds simulated on one computer](internals/test-clouds.md), whose servers are part of "
    "this repository:"
)


def records() -> list[dict[str, Any]]:
    """All records, by their file names."""
    return [json.loads(path.read_text()) for path in sorted(RECORDS.glob("*.json"))]


def section(known: Sequence[dict[str, Any]]) -> str:
    """The end of the page: a row for each record."""
    real, simulated = (
        [record for record in known if record["real"] is kind] for kind in (True, False)
    )
    parts = [HEADING, "\n".join(_table(real)) if real else _NONE]
    if simulated:
        parts += [_SIMULATED, "\n".join(_table(simulated))]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _table(known: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "| cloud | date | versions | passed | failed or skipped | boot, agent | at most | bill |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for record in known:
        versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
        passed = sum(step["outcome"] == "passed" for step in record["steps"])
        others = ", ".join(
            f"{step['name']} {step['outcome']}"
            for step in record["steps"]
            if step["outcome"] != "passed"
        )
        boots = [
            step["figures"]
            for step in record["steps"]
            if step["name"] == "machines" and step["figures"]
        ]
        seconds = "; ".join(f"{boot['type']} {boot['agent_seconds']:.0f} s" for boot in boots)
        bill = (
            "not yet"
            if record["bill"] is None
            else "agrees"
            if record["bill"]["agrees"]
            else "differs"
        )
        money = f"${record['most_usd']:.3f}"
        cells = (record["cloud"], record["date"], versions, f"{passed} of {len(record['steps'])}")
        yield f"| {' | '.join((*cells, others or '-', seconds or '-', money, bill))} |"


def written(page: str) -> str:
    """The page with the present records."""
    return page.partition(HEADING)[0] + section(records())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
