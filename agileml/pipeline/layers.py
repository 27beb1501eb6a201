"""Layers of numpy, for models of your own."""

from agileml.pipeline.model.layers import Dense, Dropout, cross_entropy, squared_error

__all__ = ["Dense", "Dropout", "cross_entropy", "squared_error"]
