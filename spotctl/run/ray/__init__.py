"""Runs on a Ray cluster, where nothing is rented."""
