"""Machines on Azure.

`provider` is the `CloudProvider`. `inventory` lists machines that exist or have ended, `removal` deletes resources, and
`calls` is the table of all requests. The pure modules build requests and interpret answers: `names`, `template`,
`sizes`, `ends`, `refusals`. `permissions` lists the permissions that all of this needs.
"""
