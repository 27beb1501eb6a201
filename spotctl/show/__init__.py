"""Everything that prints or draws."""
