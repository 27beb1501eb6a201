"""Plans of jobs: tables, JSON and plots."""
