"""The package's errors, split by what the caller can do about them."""


class PricingDataError(Exception):
    """Root of this package's errors; the message names the object, the value and the fix."""


class BadInput(PricingDataError):
    """An input file, option or value is invalid; correct it and try again."""


class BadCloudPackage(PricingDataError):
    """The package of a cloud is damaged or of another version."""


class BadMarket(BadInput, ValueError):
    """A market's text or one of its parts is malformed."""


class UnknownMarket(BadInput, LookupError):
    """No history is stored for a market or a pattern."""


class UnknownInstanceType(PricingDataError, LookupError):
    """The catalog does not describe an instance type."""


class UnknownPrice(PricingDataError, LookupError):
    """No price is known; never treated as 0."""


class OutsideHistory(PricingDataError, LookupError):
    """The history does not cover the requested time; prices are never extrapolated."""


class StoreError(PricingDataError):
    """The store cannot be read or written; its previous content is intact."""


class OverLimit(PricingDataError):
    """Something needs more memory or time than it was allowed."""


class CloudError(PricingDataError):
    """A cloud did not do what was requested. `cure` says what to do; `code` is the cloud's own
    error code, if any.
    """

    def __init__(self, problem: str, cure: str = "", code: str = "") -> None:
        super().__init__(f"{problem}; {cure}" if cure else problem)
        self.problem = problem
        self.cure = cure
        self.code = code


class MissingCredentials(CloudError):
    """Credentials are missing, invalid or expired."""


class AccessDenied(CloudError):
    """The credentials are valid but lack a permission; the message names it."""


class UnknownResource(CloudError):
    """Something that the call names does not exist, or is not visible to these credentials."""


class RequestRejected(CloudError):
    """The cloud rejected the request itself; repeating it changes nothing."""


class RateLimited(CloudError):
    """The cloud still limited the rate of calls after all retries; try again later."""


class NoAnswer(CloudError):
    """No answer, or an answer the API does not document, after all retries; try again later."""


class IncompleteAnswer(CloudError):
    """Some records of an answer could not be used; the others were kept."""


class MissingExtra(CloudError):
    """An optional dependency is needed; the message names the pip command."""
