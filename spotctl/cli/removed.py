"""Names of commands and options that are gone, and what has replaced them. They are errors, not commands."""

from collections.abc import Sequence

from spotctl.home.errors import BadRequest

GONE = ""

REMOVED = {
    "top": "status --watch",
    "down": "stop",
    "attach": "resume",
    "admit": "ssh --admit",
    "train": "lab train",
    "beta": "lab beta",
    "backtest": "lab backtest",
    "gavel": "lab gavel",
    "parallel": "lab parallel",
    **{
        f"prices {name}": f"lab prices {name}"
        for name in ("backup", "correct", "egress", "export", "ls", "plot", "snapshot", "sources", "sql")
    },
    **{
        f"{prices} {name}": now
        for prices in ("prices", "lab prices")
        for name, now in {
            "watch": "prices best --below",
            "stats": "lab prices ls --stats",
            "gaps": "lab prices ls --gaps",
            "check": "lab prices ls --check",
            "corrections": "lab prices correct --list",
        }.items()
    },
    "lab prices snapshot make": "lab prices snapshot",
    "lab prices snapshot add": "prices import",
    "prices fetch --product": "prices fetch --os",
    **dict.fromkeys(("lab prices egress --at", "lab prices egress --after-gb"), GONE),
    "lab beta plot": "lab beta show --plot",
    **{f"lab beta show --{option}": GONE for option in ("age", "lifetimes", "availability")},
    **{f"lab beta calibrate --{option}": GONE for option in ("step", "learner", "seed")},
    "lab backtest compare": "lab backtest run --against",
    "lab backtest frontier": "lab backtest run --frontier",
    "lab train --minutes": "lab train --seconds",
    "lab train --listen": "lab train --address",
    **{
        f"lab train --{name}-timeout": f"lab train --timeouts {name}=SECONDS"
        for name in ("heartbeat", "hang", "startup")
    },
    **{
        f"lab parallel {command} --{option}": f"lab parallel {command} --split"
        for command in ("plan", "train")
        for option in ("scheme", "stages", "replicas", "chunks", "tensor", "recompute", "no-recompute", "allow-delay")
    },
    **{f"lab parallel train --{option}": GONE for option in ("every", "hang-timeout")},
    "lab parallel plan --tensors": GONE,
    **{
        f"lab parallel transformer --{option}": GONE
        for option in ("bytes-per-parameter", "microbatch", "chunks", "scatter")
    },
    **{
        f"lab gavel analyze --{option}": "lab gavel analyze SCENARIO.yaml"
        for option in (
            *("throughputs", "prices", "markets", "on-demand", "jobs", "home", "baseline", "days", "starts"),
            *("dataset-gb", "checkpoint-gb", "dataset-on", "move", "evictions", "machine"),
        )
    },
}
"""Commands and options that are gone, with what replaced each, or `GONE`."""


def check_not_removed(words: Sequence[str]) -> None:
    """Raises `BadRequest` for a command line, from its first command on, that uses a removed name."""
    for name, now in REMOVED.items():
        *command, last = name.split()
        begins = list(words[: len(command)]) == command
        rest = words[len(command) :]
        is_used = last in (word.split("=")[0] for word in rest) if last.startswith("--") else list(rest[:1]) == [last]
        if begins and is_used:
            raise BadRequest(f"{name} is now `spotctl {now}`" if now else f"{name} is gone; nothing replaces it")
