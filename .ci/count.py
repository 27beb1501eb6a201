"""Prints `N passed, N failed, N skipped` from pytest's JUnit reports, in which each test stands once."""

from __future__ import annotations

import sys
from collections import Counter
from xml.etree import ElementTree


def main(paths: list[str]) -> None:
    """An error in a fixture counts as a failure; a test in two reports is an error of this script's caller."""
    roots = [ElementTree.parse(path).getroot() for path in paths]  # noqa: S314 - pytest wrote them a moment ago
    # A test that was tried again stands twice in its report.
    reported = [{(case.get("classname"), case.get("name")) for case in root.iter("testcase")} for root in roots]
    times = Counter(test for tests in reported for test in tests)
    twice = [f"{place}::{name}" for (place, name), reports in times.items() if reports > 1]
    if twice:
        sys.exit(f"counted more than once: {', '.join(twice[:5])}")
    suites = [suite for root in roots for suite in root.iter("testsuite")]
    total, failed, errors, skipped = (
        sum(int(suite.get(name, "0")) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    sys.stdout.write(f"{total - failed - errors - skipped} passed, {failed + errors} failed, {skipped} skipped\n")


if __name__ == "__main__":
    main(sys.argv[1:])
