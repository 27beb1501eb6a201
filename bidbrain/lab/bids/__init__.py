"""A generated market of hosts that sell to the highest bid, and ways of bidding compared in it."""
