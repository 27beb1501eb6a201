"""The launcher's identity at object stores: credentials that the clouds' SDKs find here, such as a profile or a
sign-in.

The launcher never queries a metadata service itself: most computers have none, and a run would wait for it.
"""

from typing import Any

from pricing_data.known_clouds import part_of


class LauncherIdentity:
    """See `StoreIdentity`. The SDKs are imported when they are needed."""

    def at(self, cloud: str) -> Any:  # noqa: ANN401 - each cloud's store asks for something else
        return part_of(cloud, "identity").LAUNCHER


LAUNCHER = LauncherIdentity()
"""The identity of this process, which keeps the credentials that the SDKs have found."""
