"""Training that goes on through evictions: an elastic parameter server with tiers of reliability."""
