"""Devices, bandwidths and sizes as `spotctl lab parallel` takes them."""

import re

from spotctl.home.errors import BadRequest

_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"([0-9.]+(?:e[+-]?[0-9]+)?)\s*([kmgt]?i?)b", re.IGNORECASE)
_BANDWIDTH = re.compile(r"([0-9.]+)\s*([kmgt]?i?)(b|bit)/s", re.IGNORECASE)


def parse_devices(text: str) -> tuple[str, tuple[int, ...]]:
    """`v100:4x4`: the type, and devices per server, servers, and so on; `v100:16` is one level."""
    kind, _, counts = text.rpartition(":")
    parts = counts.split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise BadRequest(f"--devices {text!r} is not TYPE:COUNT or TYPE:PER_SERVERxSERVERS, e.g. v100:4x4")
    return kind or "device", tuple(int(part) for part in parts)


def parse_bandwidths(text: str, levels: int) -> tuple[float, ...]:
    """`10GB/s,10Gbit/s`: bytes per second within a server, between servers, and so on."""
    matches = [_BANDWIDTH.fullmatch(part.strip()) for part in text.split(",")]
    if not all(matches):
        raise BadRequest(f"--bandwidth {text!r} is not a list of rates such as 10GB/s,10Gbit/s")
    rates = tuple(
        _amount(match[1], match[2], text) / (8 if match[3].lower() == "bit" else 1)
        for match in matches
        if match is not None
    )
    if len(rates) != levels:
        raise BadRequest(f"--bandwidth {text!r} has {len(rates)} rates for {levels} levels of devices: give one each")
    return rates


def parse_bytes(text: str) -> float:
    """`16GiB`, `500MB`."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise BadRequest(f"--memory {text!r} is not a size such as 16GiB")
    return _amount(match[1], match[2], text)


def parse_sizes(text: str) -> list[int]:
    """`1,2,4`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise BadRequest(f"--microbatch {text!r} is not a list of sizes such as 1,2,4")
    return [int(part) for part in parts]


def _amount(number: str, unit: str, text: str) -> float:
    try:
        value = float(number) * _UNITS[unit.lower()]
    except (ValueError, KeyError):
        raise BadRequest(f"{text!r} is not a number with a unit such as 16GiB or 10GB/s") from None
    if not 0 < value < float("inf"):
        raise BadRequest(f"{text!r} must be above 0")
    return value
