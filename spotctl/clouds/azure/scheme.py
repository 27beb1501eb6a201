"""How locations in Blob Storage are written."""

SCHEME, FORM = "az", "az://CONTAINER@ACCOUNT/..."
