"""`python -m tests.golden BASE [--only PATTERN]`: compares the commands of the present tree with
those of BASE.

What both print is kept, so a comparison that was killed goes on where it was, and one after a new
reason only compares.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from fnmatch import fnmatchcase

from tests.golden.catalogue import scenarios_of
from tests.golden.comparison import compared, reasons, summary, texts
from tests.golden.homes import recorded_homes
from tests.golden.trees import (
    CACHE,
    commit_of,
    present_recordings,
    present_tree,
    recorded,
    tree_of_commit,
)

LEAST = 500
"""Fewer commands show that the catalogue no longer finds what it collects from the commit."""


def main(words: list[str]) -> int:
    """Prints the differences; 0 if reasons explain them all."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("base", help="the commit to compare with")
    parser.add_argument(
        "--only", nargs="+", default=[], help="names of commands, with *, or words in them"
    )
    parser.add_argument("--most", type=int, default=20, help="how many differences to print")
    parser.add_argument(
        "--again",
        action="store_true",
        help="record the present tree again, though it did not change",
    )
    parser.add_argument(
        "--list", action="store_true", help="print the names of all commands, and record nothing"
    )
    given = parser.parse_args(words)
    base = tree_of_commit(commit_of(given.base))
    scenarios = scenarios_of(base)
    titles = [title for scenario in scenarios for title in scenario.titles()]
    if len(set(titles)) < max(LEAST, len(titles)):
        twice = [title for title, count in Counter(titles).items() if count > 1]
        raise SystemExit(
            f"{len(titles)} commands, not {LEAST} or more with different names; repeated: {twice}"
        )
    patterns = [one if "*" in one else f"*{one}*" for one in given.only or ["*"]]
    chosen = [one for one in scenarios if any(_matches(title, patterns) for title in one.titles())]
    if given.list:
        print("\n".join(title for title in titles if _matches(title, patterns)))
        return 0
    if not chosen:
        raise SystemExit(f"no command has a name like {given.only}; --list prints all names")
    homes = recorded_homes(base, {one.home for one in chosen if one.home})
    before = recorded(base, base, chosen, homes, CACHE / "recordings" / base.name)
    now = present_tree()
    after = recorded(
        now,
        base,
        chosen,
        homes,
        present_recordings(now),
        [one["seconds"] for one in before],
        given.again,
    )
    old, new = (
        {name: one for name, one in texts(of).items() if _matches(name, patterns)}
        for of in (before, after)
    )
    result = compared(old, new, reasons())
    if given.only:
        result.stale.clear()
    print(summary(result, given.most), end="")
    return 1 if result.differing else 0


def _matches(title: str, patterns: list[str]) -> bool:
    return any(fnmatchcase(title, pattern) for pattern in patterns)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
