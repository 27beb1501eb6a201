"""A machine's request to Azure for its own deletion."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

from spotctl.clouds.azure import self_deletion as azure
from tests.cloud.azure_models import check_version
from tests.spotctl.clouds.test_service_models import _COMPUTE, fetched, request_of_sdk, shape_of


def test_a_machine_of_azure_deletes_itself_with_the_sdks_request() -> None:
    url, _ = azure.deletion(fetched)
    method, path, newest = request_of_sdk(_COMPUTE, "virtual_machines_delete")
    asked = urlsplit(url)
    assert (method, re.fullmatch(shape_of(path), asked.path.lower()) is not None) == (
        "DELETE",
        True,
    )
    (version,) = parse_qs(asked.query)["api-version"]
    check_version("Microsoft.Compute/virtualMachines", version)
    assert version <= newest
