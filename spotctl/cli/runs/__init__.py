"""Runs that a command launches, shows, hands over or follows."""
