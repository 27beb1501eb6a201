"""The error boundary: what went wrong as one line on stderr, and the exit code that stands for it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

import typer

from agileml import errors as training
from bidbrain import errors as deciding
from pricing_data import errors as pricing
from spotctl import errors as product
from spotctl.agent import errors as machine
from spotctl.machines import base as providing
from spotctl.planning import errors as planning
from spotctl.runlog import errors as running

DONE = 0
FAILED = 1
USAGE = 2
NOT_IN_TIME = 3
OVER_BUDGET = 4
CREDENTIALS = 5
ALREADY_RUNNING = 6
INTERRUPTED = 130

# The first that fits, so the special before the general.
_CODES: tuple[tuple[type[Exception], int], ...] = (
    (pricing.BadInput, USAGE),
    (product.BadSettings, USAGE),
    (product.BadRequest, USAGE),
    (product.MissingSecret, CREDENTIALS),
    (pricing.MissingCredentials, CREDENTIALS),
    (pricing.AccessDenied, CREDENTIALS),
    (pricing.PricingDataError, FAILED),
    # A decision is pure: what it refuses is what it was asked.
    (deciding.BidBrainError, USAGE),
    (training.BadInput, USAGE),
    (training.AgileMLError, FAILED),
    (planning.NotInTime, NOT_IN_TIME),
    (planning.OverBudget, OVER_BUDGET),
    (running.AlreadyRunning, ALREADY_RUNNING),
    (providing.NotPermitted, CREDENTIALS),
    (providing.NoCapacity, NOT_IN_TIME),
    (providing.QuotaReached, NOT_IN_TIME),
    (product.SpotctlError, FAILED),
    (machine.AgentError, FAILED),
)


def exit_code_of(command: Callable[[], object], *, debug: bool) -> int:
    """Runs a command; the exit code says how it went. With `debug` the traceback is shown as well."""
    try:
        result = command()
    except typer.Exit as ended:
        return ended.exit_code
    except typer.TyperException as error:
        return _usage(error)
    except (KeyboardInterrupt, typer.Abort):
        result = INTERRUPTED
    except SystemExit as ended:
        # Typer's answer to a pipe whose reader (head, less) has seen enough. That is no failure.
        return DONE if isinstance(ended.__context__, BrokenPipeError) else FAILED
    except OSError as error:
        _say(f"{error.filename or 'output'}: {error.strerror or error}")
        return FAILED
    except Exception as error:  # noqa: BLE001  # the boundary: no traceback reaches a user who did not ask for it
        return _failed(error, debug=debug)
    if result == INTERRUPTED:
        _say("interrupted; what was stored is kept")
    return result if isinstance(result, int) else DONE


def _failed(error: Exception, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    message = " ".join(str(error).split())
    code = next((code for kind, code in _CODES if isinstance(error, kind)), None)
    if code is None:
        _say(f"internal error, {type(error).__name__}: {message} (spotctl --debug COMMAND shows where)")
        return FAILED
    _say(message)
    return code


def _usage(error: typer.TyperException) -> int:
    context = getattr(error, "ctx", None)
    hint = f" (see {context.command_path} --help)" if context else ""
    # A group called without a command has no message: it has shown its help already.
    if message := " ".join(str(getattr(error, "format_message", error.__str__)()).split()):
        _say(message + hint)
    return USAGE


def _say(text: str) -> None:
    sys.stderr.write(f"spotctl: {text}\n")
