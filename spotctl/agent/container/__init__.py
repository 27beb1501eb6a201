"""Payloads: the processes of a command, perhaps in a container."""
