"""Training scripts that others published, tried as their users would."""
