"""Deliberate bugs of the clouds' providers, to check that contract and servers detect them.

`python -m tests.spotctl.clouds.provider_mutants [CLOUD]` introduces one after another and prints
how it was detected.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.spotctl.clouds.aws.mutants import OF_AWS
from tests.spotctl.clouds.azure.mutants import OF_AZURE
from tests.spotctl.clouds.gcp.mutants import OF_GCP

MUTANTS = (*OF_AWS, *OF_GCP, *OF_AZURE)


def main(cloud: str = "") -> int:
    """Prints how each bug is detected; 1 if one is not."""
    chosen = [mutant for mutant in MUTANTS if cloud in ("", mutant.cloud)]
    survivors = 0
    for mutant in chosen:
        with tempfile.TemporaryDirectory() as folder:
            how = mutant.caught(Path(folder))
        survivors += how is None
        sys.stdout.write(
            f"{mutant.cloud:<6}{mutant.name:<55}{'SURVIVES' if how is None else ' '.join(how.split())[:90]}\n"
        )
        sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - survivors} of {len(chosen)} bugs are detected\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
