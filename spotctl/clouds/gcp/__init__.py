"""Google Cloud: spot machines of Compute Engine."""
