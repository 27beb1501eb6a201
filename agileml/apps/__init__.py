"""Trainers that come with the package, and the way to a user's own."""
