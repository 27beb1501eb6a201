"""Reports on what runs cost: for people, for programs, and beside the providers' own bills."""
