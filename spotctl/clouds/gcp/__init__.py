"""Google Cloud: spot machines of Compute Engine."""

SCHEME, FORM = "gs", "gs://BUCKET/..."
"""How locations in Cloud Storage are written."""
