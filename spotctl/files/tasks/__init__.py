"""Tasks of SkyPilot and dstack, read into job files."""
