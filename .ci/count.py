"""Counts the tests of pytest's JUnit reports, each once: what passed in any of them passed, what
failed in one failed.

python3 .ci/count.py REPORT...              the tests that none of them ran, with the reason, and
                                            `N passed, N failed, N skipped`
python3 .ci/count.py --skipped REPORT...    the names for pytest of the tests that none of them ran
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

_BEST_TO_WORST = ("skipped", "passed", "failed")


def _outcome(case: ElementTree.Element) -> str:
    """An error in a fixture counts as a failure."""
    children = {child.tag for child in case}
    return (
        "failed"
        if children & {"failure", "error"}
        else "skipped"
        if "skipped" in children
        else "passed"
    )


def _name(case: ElementTree.Element) -> str:
    """The test as pytest takes it; of a module that is skipped as a whole, its file."""
    parts = [part for part in (case.get("classname") or "").split(".") if part]
    name = case.get("name") or ""
    if not parts:
        return f"{name.replace('.', '/')}.py"
    length = next(
        (i for i in range(len(parts), 0, -1) if Path(*parts[:i]).with_suffix(".py").is_file()),
        len(parts),
    )
    return "::".join([f"{'/'.join(parts[:length])}.py", *parts[length:], name])


def outcomes(paths: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The outcome of each test, and the reason of each that was skipped. Of a test tried again, the
    last try counts.
    """
    found, reasons = dict[str, str](), dict[str, str]()
    for path in paths:
        report = dict[str, str]()
        # Pytest wrote it a moment ago.
        for case in ElementTree.parse(path).getroot().iter("testcase"):  # noqa: S314
            name = _name(case)
            report[name] = _outcome(case)
            if (skipped := case.find("skipped")) is not None:
                reasons[name] = _reason(skipped)
        for name, outcome in report.items():
            found[name] = max(outcome, found.get(name, outcome), key=_BEST_TO_WORST.index)
    # A module that one report skips as a whole may be in another with its tests.
    ran = {name.partition("::")[0] for name in found if "::" in name}
    return {
        name: outcome for name, outcome in found.items() if "::" in name or name not in ran
    }, reasons


def _reason(skipped: ElementTree.Element) -> str:
    """Of a module, pytest gives it after the place."""
    message = skipped.get("message") or ""
    if message == "collection skipped":
        message = (skipped.text or "").partition("Skipped: ")[2].strip()[:-2]
    return message


def main(words: Sequence[str]) -> None:
    only_names = words[:1] == ["--skipped"]
    found, reasons = outcomes(words[1:] if only_names else words)
    skipped = sorted(name for name, outcome in found.items() if outcome == "skipped")
    if only_names:
        sys.stdout.writelines(f"{name}\n" for name in skipped)
        return
    alike = defaultdict[str, list[str]](list)
    for name in skipped:
        alike[reasons[name]].append(name)
    for reason, names in alike.items():
        sys.stdout.write(f"not run: {reason}\n")
        sys.stdout.writelines(f"  {name}\n" for name in names)
    counts = Counter(found.values())
    sys.stdout.write(
        f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped\n"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
