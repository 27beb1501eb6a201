"""`spotctl prices best` and `prices watch`: the cheapest machines that fit a wish, and when they are cheap enough."""
