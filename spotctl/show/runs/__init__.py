"""Runs and nights: tables, JSON and the view of a run that goes on."""
