"""Machines of Amazon EC2.

`provider` is the `CloudProvider`; `buyer` and `networks` prepare and place an order, `calls` makes the calls,
`leftovers` finds and removes resources. The pure modules build requests and interpret answers: `orders`, `labels`,
`images`, `rules`, `kinds`, `records`, `refusals`. `permissions` lists the permissions that all of this needs.
"""
