"""Reports on what runs cost, and the comparison with providers' bills."""
