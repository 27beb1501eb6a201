"""What can go wrong with market data, split by what the caller can do about it."""

from __future__ import annotations


class PricingDataError(Exception):
    """Root of this package's errors; the message names the object, the value and the way out."""


class BadInput(PricingDataError):
    """Something given by a person or a file cannot be understood; correct it and try again."""


class BadMarket(BadInput, ValueError):
    """A market's text or one of its parts is malformed."""


class UnknownMarket(BadInput, LookupError):
    """No history is stored for a market or a pattern."""


class UnknownInstanceType(PricingDataError, LookupError):
    """The catalog does not describe an instance type."""


class UnknownPrice(PricingDataError, LookupError):
    """No price is known; never treated as 0."""


class OutsideHistory(PricingDataError, LookupError):
    """A time was asked for that the history does not cover; never answered by a guess."""


class StoreError(PricingDataError):
    """The store cannot be read or written; what it held before is unharmed."""


class SourceError(PricingDataError):
    """A source did not deliver; other sources and regions go on."""


class MissingCredentials(SourceError):
    """No credentials, or expired ones: the message says which and how to set them."""


class AccessDenied(SourceError):
    """The credentials are good but may not do this; the message names the permission."""


class SourceUnavailable(SourceError):
    """Throttled or broken beyond the retries; trying later resumes where the fetch ended."""


class MissingExtra(SourceError):
    """An optional dependency is needed; the message names the pip command."""
