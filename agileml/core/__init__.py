"""The elasticity controller as pure code: events in, instructions out."""
