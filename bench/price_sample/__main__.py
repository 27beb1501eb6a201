"""Regenerates the shipped price history, or compares it with recorded markets.

python -m bench.price_sample OUT.parquet           writes the sample
python -m bench.price_sample --describe [FILE...]  prints its statistics next to those of price files
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.price_sample.describe import comparison
from bench.price_sample.synthetic import shipped_sample
from pricing_data.errors import PricingDataError
from pricing_data.store.segments import write_segment
from pricing_data.store.table import PriceTable


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.price_sample",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--describe", action="store_true", help="print statistics instead of writing the sample"
    )
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="file to write, or files to compare with",
    )
    options = parser.parse_args(arguments)
    if not options.describe and len(options.files) != 1:
        parser.error("name one file to write, or pass --describe")
    try:
        if options.describe:
            sys.stdout.write(comparison(options.files))
        else:
            write_segment(options.files[0], PriceTable.of(shipped_sample()))
    except (PricingDataError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
