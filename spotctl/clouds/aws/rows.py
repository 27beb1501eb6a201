"""Items of EC2's lists, as its SDK reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]
