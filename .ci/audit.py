"""Looks for published advisories about the packages of lock files: python .ci/audit.py LOCK...

Exits with 0 if none is known of any package, with 1 if there are some, and with 3 if packages could
not be looked up, which is no good news. It needs pip-audit, which `make audit` installs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

CLEAN, VULNERABLE, UNKNOWN = 0, 1, 3


def verdict(packages: Sequence[dict[str, Any]], complaint: str) -> tuple[int, list[str]]:
    """The exit code and the lines to print; without packages, pip-audit ended with the
    complaint."""
    if not packages:
        return UNKNOWN, [f"COULD NOT CHECK: no advisories could be reached: {complaint}"]
    affected = [package for package in packages if package.get("vulns")]
    skipped = Counter(
        package["skip_reason"].partition(":")[0] for package in packages if "skip_reason" in package
    )
    lines = [
        f"{package['name']} {package['version']}: {found['id']}, fixed in "
        f"{', '.join(found['fix_versions']) or 'none'}"
        for package in affected
        for found in package["vulns"]
    ]
    if affected:
        lines.append(
            f"VULNERABLE: {len(affected)} of {len(packages)} packages have known advisories"
        )
    if skipped:
        reasons = "; ".join(f"{reason} ({count} packages)" for reason, count in skipped.items())
        lines.append(f"COULD NOT CHECK {skipped.total()} of {len(packages)} packages: {reasons}")
    if not lines:
        lines.append(f"CLEAN: none of {len(packages)} packages has a known advisory")
    return VULNERABLE if affected else UNKNOWN if skipped else CLEAN, lines


def main(locks: Sequence[str]) -> int:
    files = [word for lock in locks for word in ("--requirement", lock)]
    words = [
        sys.executable,
        "-m",
        "pip_audit",
        "--disable-pip",
        "--require-hashes",
        "--format=json",
        *files,
    ]
    ended = subprocess.run(
        [*words, "--progress-spinner=off"], capture_output=True, text=True, check=False
    )
    packages = json.loads(ended.stdout)["dependencies"] if ended.stdout.strip() else []
    code, lines = verdict(
        packages, (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[-1]
    )
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
