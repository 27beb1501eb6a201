"""The ground floor: settings, the folders of a home, quotas and errors."""
