"""Prints `N passed, N failed, N skipped` from pytest's JUnit report."""

from __future__ import annotations

import sys
from xml.etree import ElementTree


def main(path: str) -> None:
    """An error in a fixture counts as a failure."""
    suites = list(ElementTree.parse(path).getroot().iter("testsuite"))  # noqa: S314 - pytest wrote it a moment ago
    total, failed, errors, skipped = (
        sum(int(suite.get(name, "0")) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    sys.stdout.write(f"{total - failed - errors - skipped} passed, {failed + errors} failed, {skipped} skipped\n")


if __name__ == "__main__":
    main(sys.argv[1])
