"""Loopback servers that simulate the clouds for the tests."""
