"""Measures the layers of a model, as a node works on them."""
