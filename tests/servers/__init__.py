"""Loopback servers that play the clouds for the tests."""
