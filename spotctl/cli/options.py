"""Options shared by several commands, and their parsing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from pricing_data.errors import BadInput
from pricing_data.units import parse_duration, parse_time
from spotctl.home.errors import BadRequest, SpotctlError

if TYPE_CHECKING:
    from pricing_data.library import Selection
    from pricing_data.series import PriceSeries

GlobArgument = Annotated[
    str,
    typer.Argument(
        help="Glob over markets, part by part: 'aws/us-east-1/*/c4.*'. Default: all.",
        show_default=False,
    ),
]

MarketArgument = Annotated[
    str,
    typer.Argument(
        help="A market: aws/us-east-1/us-east-1a/c4.xlarge (- for no zone).", show_default=False
    ),
]

CloudOption = Annotated[
    list[str] | None, typer.Option(help="Only this cloud, such as aws or local. Repeatable.")
]
RegionOption = Annotated[list[str] | None, typer.Option(help="Only this region. Repeatable.")]
TypeOption = Annotated[
    list[str] | None,
    typer.Option("--type", help="Only instance types that match this glob: 'c6i.*'. Repeatable."),
]
AcceleratorOption = Annotated[str, typer.Option(help="Only machines with this accelerator: V100.")]
LastOption = Annotated[
    str, typer.Option(help="Only the last part of each history: 7d, 36h.", show_default="all")
]
VcpusOption = Annotated[
    str, typer.Option(help="Only machines with this number of vCPUs: 8, 4..16, 32..")
]


def _jobs_like(context: typer.Context, incomplete: str) -> list[str]:
    """Names of launched jobs, for the shell to complete."""
    from spotctl.home import config
    from spotctl.log.statuses import job_names

    # The shell completes without running a command, so there is no session.
    home = context.find_root().params.get("home")
    try:
        return [
            name for name in job_names(config.load(os.environ, home)) if name.startswith(incomplete)
        ]
    except SpotctlError:
        return []


JobArgument = Annotated[
    str, typer.Argument(help="Name of the job.", show_default=False, autocompletion=_jobs_like)
]
OptionalJobArgument = Annotated[
    str,
    typer.Argument(
        help="Name of the job (optional).", show_default=False, autocompletion=_jobs_like
    ),
]
JobOrPlaceArgument = Annotated[
    str,
    typer.Argument(
        help="Name of the job, or the place that launch printed: s3://BUCKET/.../spotctl/RUN.",
        show_default=False,
        autocompletion=_jobs_like,
    ),
]
MetricsOption = Annotated[
    str,
    typer.Option(
        metavar="FILE|PORT",
        help="Publish metrics in Prometheus' text format: in a file, or on this port of 127.0.0.1 "
        "for requests with the token in the home's metrics-token.",
    ),
]


class ShownOutput(StrEnum):
    """The lines that a launch shows of its runs."""

    EVENTS = "events"
    SCRIPT = "script"


ForegroundOption = Annotated[
    bool,
    typer.Option(
        "--foreground", help="Run in this process: when this command ends, so does the run."
    ),
]


def selection(
    glob: str,
    cloud: list[str] | None = None,
    region: list[str] | None = None,
    type_: list[str] | None = None,
    accelerator: str = "",
    vcpus: str = "",
) -> Selection:
    """The markets selected by a glob and the filter options."""
    from pricing_data.library import Selection

    processors = number_range("--vcpus", vcpus) if vcpus else None
    return Selection(
        glob, tuple(cloud or ()), tuple(region or ()), tuple(type_ or ()), accelerator, processors
    )


def number_range(option: str, text: str) -> tuple[int, int]:
    """The range in `8`, `4..16`, `32..`, `..8`."""
    low, dots, high = text.partition("..")
    try:
        least = int(low) if low else 0
        most = int(high) if high else 1 << 30 if dots else least
    except ValueError:
        raise BadRequest(
            f"{option} {text!r} is not a number or range (write 8, 4..16 or 32..)"
        ) from None

    if least > most:
        raise BadRequest(f"{option} {text!r} starts above its end")
    return least, most


def check_regions(command: str, regions: Iterable[str]) -> None:
    """Raises `BadRequest` for a region that is probably mistyped."""
    from pricing_data.market import mistyped

    for region in regions:
        if meant := mistyped(region):
            raise BadRequest(f"{command}: no region is named {region!r}; did you mean {meant}?")


def start_of(text: str, now: int) -> int:
    """Start of a history given as a time, or as a duration before now."""
    start = moment_of(text, now)
    if start >= now:
        raise BadInput(f"--since {text} is in the future")
    return start


def moment_of(text: str, now: int) -> int:
    """A moment given as a time, or as a duration before now."""
    try:
        return now - parse_duration(text)
    except BadInput:
        return parse_time(text)


def time_zone(name: str) -> tzinfo:
    """The time zone of the option --tz."""
    if name == "UTC":
        return UTC

    from zoneinfo import ZoneInfo, available_timezones

    from spotctl.files.job.conversions import meant

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        known = sorted(available_timezones())
        here = "; this computer has no time zones, install tzdata" if not known else ""
        raise BadRequest(f"--tz {name!r} is not a time zone{meant(name, known)}{here}") from None


def in_zone(text: str, zone: tzinfo) -> str:
    """A time with the offset of a time zone, if it has none; anything else as it is."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return text
    return text if moment.tzinfo else moment.replace(tzinfo=zone).isoformat()


def recent(series: PriceSeries, last: str) -> PriceSeries:
    """The part of a history selected by --last, counted from its end; everything if `last` is
    empty.
    """
    if not last:
        return series
    return series.window(max(series.first, series.last - parse_duration(last)), series.last)


def operating_system(name: str, *others: str) -> str:
    """An operating system of the option --os; `others` are words that it takes in addition."""
    from pricing_data.market import OPERATING_SYSTEMS, os_of_product
    from spotctl.files.job.conversions import meant

    known = (*OPERATING_SYSTEMS, *others)
    if (chosen := os_of_product(name)).removesuffix("-vpc") not in known:
        raise BadRequest(f"--os {name!r} is not one of {', '.join(known)}{meant(chosen, known)}")
    return chosen
