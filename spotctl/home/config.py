"""Settings: one value object, read once, from the file, then the environment, then the flags.

Credentials are not settings: each SDK reads them itself.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf
from pathlib import Path
from typing import Any

from spotctl.home.cloud_settings import AwsMachineSettings, AzureMachineSettings, GcpMachineSettings, table_of
from spotctl.home.errors import BadSettings
from spotctl.home.quotas import Quota, quotas_from

FILE_NAME = "config.toml"
_PREFIX = "SPOTCTL_"
_MOST_WORKERS = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set: in the file by these names, in the environment as `SPOTCTL_<NAME>`.

    `monthly_budget` in dollars is compared with each month's costs in reports.
    An endpoint of None means the SDK's own. AWS endpoints are set by the SDK's own `AWS_ENDPOINT_URL_*`.
    """

    home: Path
    fetch_workers: int = 8
    aws_price_list_url: str | None = None
    aws_spot_advisor_url: str | None = None
    gcp_project: str | None = None
    gcp_compute_endpoint: str | None = None
    gcp_billing_endpoint: str | None = None
    gcp_resource_manager_endpoint: str | None = None
    azure_subscription: str | None = None
    azure_management_endpoint: str | None = None
    azure_retail_prices_url: str | None = None
    azure_managed_identity: bool = False
    monthly_budget: float | None = None
    quotas: tuple[Quota, ...] = ()
    aws: AwsMachineSettings = field(default_factory=AwsMachineSettings)
    gcp: GcpMachineSettings = field(default_factory=GcpMachineSettings)
    azure: AzureMachineSettings = field(default_factory=AzureMachineSettings)

    @property
    def price_store(self) -> Path:
        return self.home / "prices"


def load(environ: Mapping[str, str], home: Path | None = None) -> Settings:
    """The settings; `home` is the flag, which overrides file and environment."""
    root = (home or _home(environ)).expanduser()
    settings = Settings(home=root)
    settings = _with(settings, _from_file(root / FILE_NAME), f"{root / FILE_NAME}: ")
    named = {name.removeprefix(_PREFIX).lower(): value for name, value in environ.items() if name.startswith(_PREFIX)}
    # Machines of jobs have further SPOTCTL_* variables, so unknown ones are not an error here.
    return _with(settings, {name: value for name, value in named.items() if name in _NAMES}, f"environment: {_PREFIX}")


def _home(environ: Mapping[str, str]) -> Path:
    if stated := environ.get(f"{_PREFIX}HOME"):
        return Path(stated)
    import platformdirs

    return platformdirs.user_data_path("spotctl")


def _from_file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise BadSettings(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise BadSettings(f"{path}: not valid TOML: {error}") from error


def _with(settings: Settings, values: Mapping[str, Any], where: str) -> Settings:
    changes: dict[str, Any] = {}
    for name, value in values.items():
        if name not in _NAMES:
            raise BadSettings(f"{where}unknown setting {name}; the settings are {', '.join(sorted(_NAMES))}")
        try:
            changes[name] = _PARSERS.get(name, _text)(value)
        except ValueError as error:
            shown = name.upper() if where.endswith(_PREFIX) else name
            raise BadSettings(f"{where}{shown} is {value!r}, but must be {error}") from None
    return replace(settings, **changes)


def _text(value: object) -> str | None:
    if not isinstance(value, str):
        raise ValueError("a string in quotes")
    return value or None


def _workers(value: object) -> int:
    text = str(value)
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= _MOST_WORKERS:
        raise ValueError(f"a whole number from 1 to {_MOST_WORKERS}")
    return int(text)


def _flag(value: object) -> bool:
    text = str(value).lower()
    if text not in {"true", "false"}:
        raise ValueError("true or false")
    return text == "true"


def _dollars(value: object) -> float:
    try:
        amount = float(str(value).removesuffix(" USD"))
    except ValueError:
        amount = 0.0
    if not 0 < amount < inf:
        raise ValueError("an amount in dollars, such as 250")
    return amount


_NAMES = {setting.name for setting in fields(Settings)} - {"home"}
_PARSERS: dict[str, Callable[[object], object]] = {
    "fetch_workers": _workers,
    "azure_managed_identity": _flag,
    "monthly_budget": _dollars,
    "quotas": quotas_from,
    "aws": table_of(AwsMachineSettings),
    "gcp": table_of(GcpMachineSettings),
    "azure": table_of(AzureMachineSettings),
}
