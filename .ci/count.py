"""Prints `N passed, N failed, N skipped` from pytest's JUnit reports; a test that stands in several counts once."""

from __future__ import annotations

import sys
from collections import Counter
from xml.etree import ElementTree

_WORST_LAST = ("passed", "skipped", "failed")


def _outcome(case: ElementTree.Element) -> str:
    """An error in a fixture counts as a failure."""
    children = {child.tag for child in case}
    return "failed" if children & {"failure", "error"} else "skipped" if "skipped" in children else "passed"


def main(paths: list[str]) -> None:
    """A module that is skipped as a whole is in the report of each part; of a test tried again, the last try counts."""
    outcomes: dict[tuple[str | None, str | None], str] = {}
    for path in paths:
        report = {
            (case.get("classname"), case.get("name")): _outcome(case)
            for case in ElementTree.parse(path).getroot().iter("testcase")  # noqa: S314 - pytest wrote it a moment ago
        }
        for test, outcome in report.items():
            outcomes[test] = max(outcome, outcomes.get(test, "passed"), key=_WORST_LAST.index)
    counts = Counter(outcomes.values())
    sys.stdout.write(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped\n")


if __name__ == "__main__":
    main(sys.argv[1:])
