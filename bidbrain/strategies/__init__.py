"""Acquisition strategies: one file each, all behind the `Strategy` protocol."""
