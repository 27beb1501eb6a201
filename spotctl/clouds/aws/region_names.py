"""The regions of AWS that this version knows; others may have opened since."""

from __future__ import annotations

REGIONS = frozenset(
    """
    us-east-1 us-east-2 us-west-1 us-west-2 ca-central-1 ca-west-1 mx-central-1 sa-east-1 eu-west-1 eu-west-2
    eu-west-3 eu-central-1 eu-central-2 eu-north-1 eu-south-1 eu-south-2 ap-south-1 ap-south-2 ap-east-1
    ap-east-2 ap-northeast-1 ap-northeast-2 ap-northeast-3 ap-southeast-1 ap-southeast-2 ap-southeast-3
    ap-southeast-4 ap-southeast-5 ap-southeast-7 me-south-1 me-central-1 il-central-1 af-south-1 us-gov-east-1
    us-gov-west-1 cn-north-1 cn-northwest-1
    """.split()
)
