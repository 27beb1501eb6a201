"""`spotctl prices best`: the cheapest machines that fit a wish, and when they are cheap enough."""
