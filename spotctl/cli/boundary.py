"""The error boundary: turns an error into one line on stderr and an exit code."""

import sys
import traceback
from collections.abc import Callable

import typer

DONE = 0
FAILED = 1
USAGE = 2
NOT_IN_TIME = 3
OVER_BUDGET = 4
CREDENTIALS = 5
ALREADY_RUNNING = 6
INTERRUPTED = 130


def exit_code_of(command: Callable[[], object], *, debug: bool) -> int:
    """Runs a command and returns its exit code. With `debug`, errors also print their traceback."""
    try:
        result = command()
    except typer.Exit as ended:
        return ended.exit_code
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context else ""
        # A group called without a command has already printed its help and has no message.
        if message := " ".join(str(getattr(error, "format_message", error.__str__)()).split()):
            _say(message.replace(": Value error, ", ": ") + hint)
        return USAGE
    except (KeyboardInterrupt, typer.Abort):
        result = INTERRUPTED
    except SystemExit as ended:
        # Typer raises this when the reader of a pipe (head, less) closes it, which is not a
        # failure.
        return DONE if isinstance(ended.__context__, BrokenPipeError) else FAILED
    except OSError as error:
        _say(f"{error.filename or 'output'}: {error.strerror or error}")
        return FAILED
    # The boundary: users see a traceback only with --debug.
    except Exception as error:  # noqa: BLE001
        return _report_error(error, debug=debug)

    if result == INTERRUPTED:
        _say("interrupted; stored data is kept")
    return result if isinstance(result, int) else DONE


def _report_error(error: Exception, *, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    if isinstance(error, ModuleNotFoundError):
        from spotctl.home.errors import missing_extra

        error = missing_extra(error) or error

    message = "; ".join(
        " ".join(part.split()) for part in (str(error), *getattr(error, "__notes__", ()))
    )
    code = _code_of(error)

    if code is None:
        _say(
            f"internal error, {type(error).__name__}: {message} (spotctl --debug COMMAND shows "
            "where)"
        )
        return FAILED

    for line in getattr(error, "mistakes", ()) or (message,):
        _say(" ".join(line.split()))
    return code


def _code_of(error: Exception) -> int | None:
    """The exit code of a known error. Imported here, because most commands end without one."""
    from agileml import errors as agileml
    from bidbrain import errors as bidbrain
    from pricing_data import errors as pricing
    from spotctl.agent import errors as agent
    from spotctl.clouds import errors as machines
    from spotctl.home import errors as spotctl
    from spotctl.log import outcomes as runlog
    from spotctl.planning import errors as planning

    # The first match wins, so subclasses come before their base classes.
    codes: tuple[tuple[type[Exception], int], ...] = (
        (pricing.BadInput, USAGE),
        (pricing.BadCloudPackage, USAGE),
        (spotctl.BadSettings, USAGE),
        (spotctl.BadRequest, USAGE),
        (spotctl.MissingSecret, CREDENTIALS),
        (pricing.MissingCredentials, CREDENTIALS),
        (pricing.AccessDenied, CREDENTIALS),
        (pricing.PricingDataError, FAILED),
        # Decisions are pure, so an error is always about their input.
        (bidbrain.BidBrainError, USAGE),
        (agileml.BadInput, USAGE),
        (agileml.AgileMLError, FAILED),
        (planning.NotInTime, NOT_IN_TIME),
        (planning.OverBudget, OVER_BUDGET),
        (runlog.AlreadyRunning, ALREADY_RUNNING),
        (machines.NotPermitted, CREDENTIALS),
        (machines.NoCapacity, NOT_IN_TIME),
        (machines.QuotaReached, NOT_IN_TIME),
        (machines.NotHere, NOT_IN_TIME),
        (spotctl.Interrupted, INTERRUPTED),
        (spotctl.SpotctlError, FAILED),
        (agent.AgentError, FAILED),
    )

    return next((code for kind, code in codes if isinstance(error, kind)), None)


def warning_line(message: Warning | str, *_: object) -> str:
    """A warning as the command line shows it: in the form of an error, without a place in the
    program.
    """
    return f"spotctl: {message}\n"


def _say(text: str) -> None:
    from spotctl.home.printable import printable, width_of, wrapped

    # A command in a message can be copied only if no word is broken.
    sys.stderr.write(f"{wrapped(printable(f'spotctl: {text}'), width_of(sys.stderr))}\n")
