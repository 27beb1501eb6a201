"""Parsers of clouds' settings; each raises ValueError with what the value must be.

Each cloud has a dataclass for the table of the settings file that is named after it, and parsers of
single settings.
"""

import ipaddress
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar, cast

T = TypeVar("T")

TAG_NAME = "[a-z][-a-z0-9_]{0,62}"
TAG_VALUE = "[-a-z0-9_]{1,63}"
"""The form of tags that every cloud accepts, as patterns."""


def text(value: object) -> str | None:
    """A string; None if it is empty."""
    if not isinstance(value, str):
        raise ValueError("a string in quotes")
    return value or None


def flag(value: object) -> bool:
    """True or false, also as text from an environment variable."""
    word = str(value).lower()
    if word not in {"true", "false"}:
        raise ValueError("true or false")
    return word == "true"


def address_range(text: str) -> str:
    """An address range from which ssh may be admitted, as the clouds write it. Raises ValueError
    for any other.
    """
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        raise ValueError(f"address ranges such as 203.0.113.7/32, not {text!r}") from None

    if network.prefixlen == 0:
        raise ValueError(
            f"a narrower address range than {text} (which would let the whole internet try to log "
            "in)"
        )
    return str(network)


def address_ranges(ssh_from: tuple[str, ...]) -> tuple[str, ...]:
    """The address ranges of a setting `ssh_from`."""
    try:
        return tuple(map(address_range, ssh_from))
    except ValueError as error:
        raise ValueError(f"{error}, in ssh_from") from None


def parsed_table(kind: type[T], value: object) -> T:
    """A cloud's table of this kind, also from its lines as text, as an environment variable has
    them.
    """
    if isinstance(value, str):
        try:
            value = tomllib.loads(value)
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"lines such as 'public_ip = false' ({error})") from None

    if not isinstance(value, Mapping):
        raise ValueError("a table of settings")

    known: dict[str, object] = {
        setting.name: {} if callable(setting.default_factory) else setting.default
        for setting in fields(cast("Any", kind))
    }

    if unknown := sorted(set(value) - set(known)):
        raise ValueError(
            f"settings among {', '.join(sorted(known))}; {unknown[0]} is not one of them"
        )

    return kind(**{name: _checked(name, setting, known[name]) for name, setting in value.items()})


def _checked(name: str, value: object, default: object) -> object:
    """The value, if it is of the kind of the default; a string where that is None."""
    if isinstance(default, tuple):
        if isinstance(value, list) and all(isinstance(text, str) and text for text in value):
            return tuple(value)
        raise ValueError(f'a list of strings for {name}, such as {name} = ["..."]; it is {value!r}')
    if isinstance(default, Mapping):
        if isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values()):
            return dict(value)
        raise ValueError(
            f'a table of strings for {name}, such as {name} = {{team = "..."}}; it is {value!r}'
        )

    kind = str if default is None else type(default)
    if type(value) is kind:
        return value
    raise ValueError(f"{_KINDS[kind]} for {name}; it is {value!r}")


_KINDS: Mapping[type, str] = {bool: "true or false", int: "a whole number", str: "a string"}
