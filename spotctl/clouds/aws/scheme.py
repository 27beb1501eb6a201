"""How locations in S3 are written."""

SCHEME, FORM = "s3", "s3://BUCKET/..."
