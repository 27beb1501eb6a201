"""Built-in trainers, and loading those of users."""
