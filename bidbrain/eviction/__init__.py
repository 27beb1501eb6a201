"""How likely an eviction is, from what the market did."""
