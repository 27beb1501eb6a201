"""Runners that live on a rented machine of their run, and the laptop as their client."""
