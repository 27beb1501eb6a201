"""The `sim` engine: virtual time and a model of the network."""
