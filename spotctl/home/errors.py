"""Errors and warnings of the product itself, by what the caller can do about them."""


class SpotctlError(Exception):
    """Root of this package's errors; the message names the object, the value and the solution."""


class BadSettings(SpotctlError):
    """A setting in the file or the environment is invalid."""


class BadRequest(SpotctlError):
    """A command cannot be carried out as given."""


class MissingSecret(SpotctlError):
    """A secret that a job names is not in the environment."""


class Interrupted(SpotctlError):
    """The user ended the command early; the message says what was kept."""


class OldName(FutureWarning):
    """A name that is still read; the message says what it is called now."""
