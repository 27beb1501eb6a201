"""Addresses of messaging services, such as `tgram://...` and `mailtos://...`, as Apprise reads
them.

Such an address mostly holds a secret. No error quotes one, and what Apprise itself logs about one
reaches no log.
"""

from __future__ import annotations

import logging
import re
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import unquote

from spotctl.files.job.conversions import meant
from spotctl.home.errors import BadRequest

if TYPE_CHECKING:
    from apprise import NotifyBase

_LIST = "https://appriseit.com/services"


def service_at(address: str) -> NotifyBase:
    """The service at an address. BadRequest: there is none, or Apprise is not installed."""
    scheme = address.partition("://")[0]
    if find_spec("apprise") is None:
        raise BadRequest(
            f"{scheme}:// needs Apprise, which is not installed; run: pip install "
            "'spotctl[messages]'"
        )

    from apprise import Apprise, AppriseAsset
    from apprise.exception import AppriseException
    from apprise.manager_plugins import NotificationManager

    logger = logging.getLogger("apprise")
    logger.propagate = False
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())

    # A message is for the configured service only, and nothing about it stays on the disk.
    asset = AppriseAsset(
        app_id="spotctl",
        app_desc="spotctl",
        async_mode=False,
        http_redirects=False,
        storage_mode="memory",
    )

    try:
        service = Apprise.instantiate(address, asset=asset, suppress_exceptions=False)
    except AppriseException:
        service = None

    if service is not None:
        return service

    services = NotificationManager()
    if scheme not in services:
        raise BadRequest(
            f"{scheme}:// is no service of Apprise{meant(scheme, services.schemas())}; see {_LIST}"
        )

    form = services[scheme].setup_url or _LIST
    raise BadRequest(f"the {scheme}:// address is incomplete or malformed; {form} shows its form")


def secrets_of(service: NotifyBase) -> set[str]:
    """The parts of the address that Apprise hides where it prints it."""
    shown, whole = (
        set(re.split(r"[/:@?&=,]+", service.url(privacy=is_shown))) for is_shown in (True, False)
    )
    secrets = whole - shown
    return secrets | {unquote(secret) for secret in secrets}
