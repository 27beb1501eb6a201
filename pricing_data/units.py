"""The two exact units of market data: time in microseconds UTC, price in nano-dollars per hour.

Both are integers, so that comparing a bid with a price, and times with each other, is exact. Clouds
publish up to nine decimals, and no market's clock is finer than a microsecond.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import NamedTuple

from pricing_data.errors import BadInput

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 3600 * SECOND
DAY = 24 * HOUR
NANOS_PER_DOLLAR = 1_000_000_000
NANO_SECONDS_PER_DOLLAR = 3600 * NANOS_PER_DOLLAR
"""Amounts that were paid are integers of nano-dollar-seconds: a price per hour times seconds."""

# The most expensive machine on any price list costs a few hundred dollars an hour; a far higher
# price is an error.
MAX_USD_PER_HOUR = 10_000
# The largest amount in a job file: nine digits.
MAX_USD = 999_999_999
# Spot markets opened in 2009; an earlier date was parsed wrongly, and one far in the future was
# never observed.
EARLIEST = 1_199_145_600 * SECOND  # 2008-01-01
LATEST = 4_102_444_800 * SECOND  # 2100-01-01

# Stricter than Decimal: no underscores, no digits of other scripts.
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LONGEST = 36_500 * DAY
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DURATIONS = {"s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}


def parse_time(text: str) -> int:
    """Microseconds UTC of an ISO 8601 time; a time without a zone is taken as UTC.

    >>> parse_time("2016-02-25T00:35:34Z") == parse_time("2016-02-25 01:35:34.000+01:00")
    True
    """
    try:
        return to_micros(datetime.fromisoformat(text.strip()))
    except ValueError:
        raise BadInput(f"time {text!r} is not ISO 8601 (write 2016-02-25T00:35:34Z)") from None


def to_micros(moment: datetime) -> int:
    """Microseconds UTC of a datetime; without a zone it is taken as UTC."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    micros = (aware - _EPOCH) // timedelta(microseconds=1)
    if not EARLIEST <= micros < LATEST:
        raise BadInput(f"time {moment.isoformat()} is not in the years 2008 to 2099")
    return micros


def to_datetime(micros: int) -> datetime:
    """The aware UTC datetime of a time in microseconds."""
    return _EPOCH + timedelta(microseconds=micros)


def format_time(micros: int) -> str:
    """ISO 8601 with `Z`; fractions only if they are not 0."""
    return to_datetime(micros).isoformat().replace("+00:00", "Z")


def moment(micros: int) -> str:
    """ISO 8601 with `Z`, in whole seconds."""
    return format_time(micros // SECOND * SECOND)


_ZERO = re.compile(r"0+(\.0+)?[smhdw]?")


def parse_duration(text: str, *, zero: bool = False) -> int:
    """Microseconds of a duration such as `90d`, `36h`, `15m`; `zero` also allows `0` and `0s`.

    >>> parse_duration("1.5h") == 90 * MINUTE
    True
    """
    if zero and _ZERO.fullmatch(text.strip()):
        return 0

    number = text.strip()[:-1]
    unit = text.strip()[-1:]
    try:
        span = int(Decimal(number) * _DURATIONS[unit])
    except (KeyError, InvalidOperation, ValueError, OverflowError):
        span = 0

    if not 0 < span <= _LONGEST:
        raise BadInput(
            f"duration {text!r} is not a number above 0 with a unit s, m, h, d or w (write 90d)"
        )
    return span


def age(seconds: float) -> str:
    """A duration in its largest unit: `3 d`, `5 h`, `12 min`."""
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds * SECOND >= unit:
            return f"{seconds * SECOND / unit:.0f} {name}"
    return f"{max(seconds, 0):.0f} s"


def counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "machine"), counted(3000, "machine")
    ('1 machine', '3,000 machines')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def parse_usd(
    text: str, what: str = "price", most: int = MAX_USD_PER_HOUR, unit: str = " per hour"
) -> int:
    """Nano-dollars of a decimal price, or with `unit` empty of an amount of money; finer digits are
    rounded half to even. An amount may be written as in a job file. `what` names it in an error.

    >>> parse_usd("0.0162"), parse_usd("25000.5 USD", "--max-cost", MAX_USD, unit="")
    (16200000, 25000500000000)
    """
    number = text.strip()
    if not unit:
        number = number.removesuffix("USD").strip()
    if not _DECIMAL.fullmatch(number):
        raise BadInput(f"{what} {text!r} is not a decimal number of US dollars{unit}")

    dollars = Decimal(number)
    if not dollars.is_finite() or not 0 < dollars <= most:
        raise BadInput(f"{what} {text!r} is not above 0 and at most {most} US dollars{unit}")

    nanos = int((dollars * NANOS_PER_DOLLAR).to_integral_value(ROUND_HALF_EVEN))
    if nanos == 0:
        raise BadInput(f"{what} {text!r} is below a nano-dollar{unit}")
    return nanos


def to_usd(nanos: float) -> float:
    """Nano-dollars in dollars, for display and statistics; inexact, so never compare it with a
    bid."""
    return nanos / NANOS_PER_DOLLAR


def format_usd(nanos: int) -> str:
    """A price in dollars, exact and without trailing zeros: `0.0162`, `1.441435835`.

    >>> format_usd(16200000)
    '0.0162'
    """
    whole, rest = divmod(nanos, NANOS_PER_DOLLAR)
    trimmed = f"{whole}.{rest:09d}".rstrip("0")
    return trimmed.rstrip(".")


def bid_usd(bid: int) -> str:
    """`$0.0600`, rounded up to a hundredth of a cent: a bid is never shown below the price that it
    covers.
    """
    return f"${-(-bid // 100_000) / 10_000:.4f}"


def usd(amount: float) -> float:
    """Converts nano-dollar-seconds to dollars, for display."""
    return amount / NANO_SECONDS_PER_DOLLAR


def usd_text(value: float, digits: int = 2) -> str:
    """An amount of dollars with this number of decimals; `<$0.01` where that would show zero.

    >>> usd_text(2.4), usd_text(0.001)
    ('$2.40', '<$0.01')
    """
    sign = "-" if value < 0 else ""
    size = abs(value)
    least = 10.0**-digits
    if 0 < size < least / 2:
        if not sign:
            return f"<${least:.{digits}f}"
        return f">-${least:.{digits}f}"
    return f"{sign}${size:,.{digits}f}"


class Span(NamedTuple):
    """A span of time, in microseconds UTC."""

    start: int
    end: int

    def joined(self, later: "Span") -> "Span":
        """The union if both touch; else the later one, because the time between them is not
        covered.
        """
        touching = self.start <= later.end and later.start <= self.end
        if touching:
            start = min(self.start, later.start)
            end = max(self.end, later.end)
            return Span(start, end)
        return later
