"""Reports on what runs cost: for people, for programs, and beside the providers' own bills."""

from spotctl.reports.notes import Summary, summary

__all__ = ["Summary", "summary"]
