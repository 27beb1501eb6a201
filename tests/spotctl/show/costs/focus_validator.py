"""Checks a FOCUS 1.0 export with the validator of the FinOps Foundation.

    python -m tests.spotctl.show.costs.focus_validator [--environment FOLDER]

installs focus-validator from PyPI into an environment of its own (FOLDER, or one that is deleted
afterwards), exports made-up runs with every kind of charge on all clouds, and prints what the
validator finds: nothing in the export, and each fault that is planted in copies of it. The exit
code is 0 if so.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from pricing_data.units import HOUR, MINUTE
from spotctl.log import events as ev
from spotctl.show.costs import focus
from spotctl.show.costs.cost import Report
from tests.spotctl.show.costs.made import (
    AWS,
    AZURE,
    GCP,
    NIGHT,
    MadeRun,
    night,
    partly_reserved,
    report_of,
)

PACKAGES = ("focus-validator==1.0.0", "multimethod<1.11")
"""Later versions of multimethod lack a function that the validator's own dependencies import."""

NOT_OF_1_0 = (
    *(
        f"{name}_{rule}"
        for name in ("InvoiceIssuer", "Provider", "Publisher")
        for rule in ("IsString", "NotNull")
    ),
    *(f"{name}_Required" for name in ("InvoiceIssuer", "Provider", "Publisher", "ResourceID")),
    *("ResourceID_IsString", "ResourceID_Nullable", "SkuPriceId_Nullable"),
)
"""Rules for columns that FOCUS 1.0 does not have: it has InvoiceIssuerName, ProviderName,
PublisherName and ResourceId, and ChargeCategory instead of the ChargeType that the rule for
SkuPriceId asks for."""

Line = dict[str, str]


def _without(column: str) -> Callable[[Line], None]:
    return lambda line: line.__delitem__(column)


def _with(column: str, value: str) -> Callable[[Line], None]:
    return lambda line: line.update({column: value})


FAULTS: dict[str, tuple[str, Callable[[Line], None]]] = {
    "a missing column": ("ChargePeriodEnd_Required", _without("ChargePeriodEnd")),
    "a cost that is no number": ("BilledCost_IsDecimal", _with("BilledCost", "free")),
    "an unknown service category": ("ServiceCategory_Enum", _with("ServiceCategory", "Machines")),
    "a time without a zone": (
        "ChargePeriodStart_IsDateTime",
        _with("ChargePeriodStart", "2026-06-01 02:00:00"),
    ),
    "no account": ("BillingAccountId_NotNull", _with("BillingAccountId", "")),
}
"""What is planted, and the rule that must notice it."""


def made_up(*others: MadeRun) -> Report:
    """Runs with machines, refunds, disks, addresses, traffic and a correction, on all clouds; one
    is partly on reserved machines, which are paid for already."""
    return report_of([night(0, np.random.default_rng(5)), _extras(), partly_reserved(0), *others])


def exported() -> str:
    """Their FOCUS 1.0 export."""
    return "".join(focus.csv_lines(made_up(lossy()), focus.COLUMNS_1_0))


def lossy() -> MadeRun:
    """A run whose end says that it has cost more than its rows do."""
    made = MadeRun("lossy-1", "lossy", NIGHT)
    made.begin(kind="command", run="true")
    made.price(AWS[0], [NIGHT, NIGHT + 9 * HOUR], [100_000_000] * 2)
    made.end_machines(made.rent(AWS[0], 1, NIGHT), NIGHT + HOUR, "returned")
    made.finish(NIGHT + HOUR)
    at, end = made.events[-1]
    assert isinstance(end, ev.RunEnded)
    made.events[-1] = at, ev.RunEnded("done", "", end.wall_us, {"spent": 3600 * 10**9})
    made.add(at, ev.RowsLost(1, 7, 7, NIGHT, at))
    return made


def _extras() -> MadeRun:
    made = MadeRun("extras-1", "extras", NIGHT)
    made.begin()
    for intent, market in enumerate((GCP, AZURE, AWS[0]), start=1):
        made.price(market, [NIGHT, NIGHT + 9 * HOUR], [100_000_000] * 2)
        order = ev.RentIntended(
            intent,
            market,
            1,
            300_000_000,
            388_000_000,
            1.0,
            False,
            NIGHT + 9 * HOUR,
            disk=11_000_000,
            address=5_000_000,
        )
        name = f"i-{intent}"
        made.add(NIGHT, order)
        made.add(NIGHT, ev.Rented(intent, (ev.Granted(name, NIGHT),)))
        made.add(NIGHT + MINUTE, ev.MachineRan(name))
        made.add(NIGHT + MINUTE, ev.Sent(name, NIGHT + MINUTE, 3 * 2**30, 90_000_000))
        # The first hour of an evicted machine is refunded on AWS.
        made.end_machines([name], NIGHT + HOUR - MINUTE, "evicted")
        made.add(NIGHT + 2 * HOUR, ev.Corrected(name, NIGHT + HOUR, -3_600_000, "bill.csv"))
    made.add(NIGHT + MINUTE, ev.Sent("i-1", NIGHT + MINUTE, 5 * 2**30, 0))
    made.finish(NIGHT + 3 * HOUR, clocks=10)
    return made


def found_by(validator: Path, text: str) -> set[str]:
    """The rules that an export breaks."""
    with TemporaryDirectory() as folder:
        data, skipped = Path(folder) / "export.csv", Path(folder) / "skipped.yaml"
        data.write_text(text)
        skipped.write_text(json.dumps({"overrides": sorted(NOT_OF_1_0)}))
        (packages,) = validator.parent.parent.glob("lib/python*/site-packages")
        given = (
            "--validate-version",
            "1.0",
            "--data-file",
            str(data),
            "--override-file",
            str(skipped),
        )
        # It reads its list of currencies relative to the working directory.
        ended = subprocess.run(
            [str(validator), *given], cwd=packages, capture_output=True, text=True, check=False
        )
    failed = {
        line.removesuffix(" failed:")
        for line in ended.stdout.splitlines()
        if line.endswith(" failed:")
    }
    if not failed and "succeeded" not in ended.stdout:
        raise RuntimeError(
            f"the validator ended with {ended.returncode}: {ended.stdout}{ended.stderr}"
        )
    return failed


def planted(text: str, change: Callable[[Line], None]) -> str:
    """A copy of an export with a fault in every line."""
    lines = list(csv.DictReader(io.StringIO(text)))
    for line in lines:
        change(line)
    out = io.StringIO()
    writer = csv.DictWriter(out, lines[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return out.getvalue()


@contextmanager
def installed(folder: Path | None) -> Iterator[Path]:
    """The validator's program, in an environment that has it."""
    with TemporaryDirectory() as temporary:
        place = folder or Path(temporary) / "environment"
        program = place / "bin" / "focus-validator"
        if not program.exists():
            venv.create(place, with_pip=True)
            subprocess.run([place / "bin" / "pip", "install", "--quiet", *PACKAGES], check=True)
        yield program


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--environment", type=Path, help="folder of the environment; kept, and used if it exists"
    )
    asked, text = parser.parse_args(), exported()
    with installed(asked.environment) as validator:
        broken = found_by(validator, text)
        sys.stdout.write(
            f"{text.count(chr(10)) - 1} lines: {', '.join(sorted(broken)) or 'no rule is broken'}\n"
        )
        missed = 0
        for what, (rule, change) in FAULTS.items():
            noticed = rule in found_by(validator, planted(text, change))
            missed += not noticed
            sys.stdout.write(
                f"planted {what}: {rule} {'notices it' if noticed else 'DOES NOT NOTICE IT'}\n"
            )
    return 1 if broken or missed else 0


if __name__ == "__main__":
    sys.exit(main())
