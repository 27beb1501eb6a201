"""Machines of Amazon EC2.

`provider` is the `CloudProvider`. `buyer` prepares and places an order, whose arguments `orders`
builds; `inventory` reads EC2's lists, and removes what is left; `calls` makes the calls and knows
what refusals mean. `permissions` lists the permissions that all of this needs.
"""

SCHEME, FORM = "s3", "s3://BUCKET/..."
"""How locations in S3 are written."""
