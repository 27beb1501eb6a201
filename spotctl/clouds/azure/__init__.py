"""Machines on Azure.

`provider` is the `CloudProvider`, and `buyer` makes its orders. `inventory` lists machines that
exist or have ended, `groups` makes and deletes what a run has, and `calls` is the table of all
requests, permissions and refusals. `orders` builds the requests.
"""

SCHEME, FORM = "az", "az://CONTAINER@ACCOUNT/..."
"""How locations in Blob Storage are written."""
