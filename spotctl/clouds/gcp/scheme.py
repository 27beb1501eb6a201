"""How locations in Cloud Storage are written."""

SCHEME, FORM = "gs", "gs://BUCKET/..."
