"""Processes, mailboxes and checkpoints: what every engine shares."""
