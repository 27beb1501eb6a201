"""`python -m tests.cloud`: clouds on this computer for trying spotctl by hand, without an account.

eval "$(python -m tests.cloud up aws gcp)"     start clouds, and use them in this shell
spotctl launch --attached job.yaml             rents machines there
python -m tests.cloud status                   what is rented, and what it has cost
python -m tests.cloud evict i-0abc --warning 30s
python -m tests.cloud down                     end everything
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from typing import Any

from pricing_data.errors import BadInput
from pricing_data.units import SECOND, parse_duration
from tests.cloud.running import SERVERS, NotRunning, ask, start


def main(words: list[str]) -> int:
    given = _parser().parse_args(words)
    try:
        given.run(given)
    except (NotRunning, ValueError, BadInput) as error:
        sys.stderr.write(f"tests.cloud: {error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cloud",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="up|status|evict|down")
    up = commands.add_parser(
        "up", help="start clouds, and print the environment that makes spotctl use them"
    )
    up.add_argument("clouds", nargs="*", metavar="aws|gcp|azure", help="default: all three")
    up.add_argument("--json", action="store_true", help="print the environment as JSON")
    up.set_defaults(run=_up)
    status = commands.add_parser("status", help="what is rented, what exists, and what it has cost")
    status.add_argument("--json", action="store_true")
    status.set_defaults(run=_status)
    evict = commands.add_parser("evict", help="take a spot machine back")
    evict.add_argument("machine", help="its id, as status prints it")
    evict.add_argument(
        "--warning", default="120s", help="30s, 2m, or none for an eviction without warning"
    )
    evict.set_defaults(run=_evict)
    down = commands.add_parser("down", help="end all machines and servers")
    down.set_defaults(run=lambda _: ask("down"))
    return parser


def _up(given: argparse.Namespace) -> None:
    clouds = given.clouds or list(SERVERS)
    if unknown := [name for name in clouds if name not in SERVERS]:
        raise ValueError(f"{unknown[0]} cannot be started; choose from {', '.join(SERVERS)}")
    try:
        running = list(ask("status")["clouds"])
    except NotRunning:
        start(clouds)
    else:
        if set(running) != set(clouds):
            raise ValueError(
                f"{', '.join(running)} is up already; end it first with: python -m tests.cloud down"
            )
    environment = ask("environment")
    if given.json:
        _say(json.dumps(environment, indent=2))
    else:
        _say(
            "\n".join(f"export {name}={shlex.quote(value)}" for name, value in environment.items())
        )


def _status(given: argparse.Namespace) -> None:
    status = ask("status")
    if given.json:
        _say(json.dumps(status, indent=2))
        return
    for name, cloud in status["clouds"].items():
        _say(f"{name}: {len(cloud['machines'])} machines rented, {cloud['usd']:.6f} USD")
        for one in cloud["machines"]:
            _say("  " + _line(one))
        kinds = [
            one
            for one in cloud["resources"]
            if one["id"] not in {machine["id"] for machine in cloud["machines"]}
        ]
        for one in kinds:
            _say(f"  {one['kind']} {one['id']}")


def _line(machine: dict[str, Any]) -> str:
    kind = "spot" if machine["spot"] else "on demand"
    words = [
        machine["id"],
        machine["market"],
        kind,
        machine["state"],
        machine["reason"],
        machine["public"],
    ]
    return "  ".join([*(word for word in words if word), f"{machine['usd']:.6f} USD"])


def _evict(given: argparse.Namespace) -> None:
    warning = None if given.warning == "none" else parse_duration(given.warning) / SECOND
    evicted = ask("evict", machine=given.machine, warning_seconds=warning)
    when = "now" if warning is None else f"in {given.warning}"
    _say(f"{evicted['cloud']}: {evicted['machine']} is evicted {when}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
