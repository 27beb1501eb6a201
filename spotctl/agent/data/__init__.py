"""Copies to and from a machine: object stores, data sets, outputs, packages."""
