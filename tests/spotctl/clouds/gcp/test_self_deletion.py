"""A machine's request to Compute Engine for its own deletion."""

from __future__ import annotations

from urllib.parse import urlsplit

from google.api_core import path_template
from google.cloud.compute_v1.services.instances.transports import rest_base

from spotctl.clouds.gcp import self_deletion as gcp
from tests.spotctl.agent.lease.test_self_deletion import GOOGLE
from tests.spotctl.clouds.test_service_models import fetched


def test_a_machine_of_google_deletes_itself_with_the_sdks_request() -> None:
    url, _ = gcp.deletion(fetched)
    (option,) = rest_base._BaseInstancesRestTransport._BaseDelete._get_http_options()  # type: ignore[no-untyped-call]
    assert option["method"] == "delete"
    assert urlsplit(url).path == GOOGLE
    assert path_template.validate(option["uri"], urlsplit(url).path)  # type: ignore[no-untyped-call]
