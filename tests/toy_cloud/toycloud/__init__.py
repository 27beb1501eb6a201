"""A toy cloud: its machines are processes of this computer, and nobody pays for them."""
