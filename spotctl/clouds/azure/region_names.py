"""The regions of Azure that this version knows; others may have opened since. Files spell them in many ways."""

from __future__ import annotations

import re
from itertools import permutations

REGIONS = frozenset(
    """
    australiacentral australiacentral2 australiaeast australiasoutheast austriaeast belgiumcentral brazilsouth
    brazilsoutheast canadacentral canadaeast centralindia centralus chilecentral eastasia eastus eastus2 eastus3
    francecentral francesouth germanynorth germanywestcentral indonesiacentral israelcentral italynorth
    japaneast japanwest jioindiacentral jioindiawest koreacentral koreasouth malaysiawest mexicocentral
    newzealandnorth northcentralus northeurope norwayeast norwaywest polandcentral qatarcentral southafricanorth
    southafricawest southcentralus southeastasia southindia spaincentral swedencentral swedensouth
    switzerlandnorth switzerlandwest uaecentral uaenorth uksouth ukwest westcentralus westeurope westindia
    westus westus2 westus3
    """.split()
)


def spelled(region: str) -> str:
    """A region in the spelling of Azure's API (armRegionName); files write `us_east`, price sheets `East US`.

    >>> spelled("us_east"), spelled("South Central US")
    ('eastus', 'southcentralus')
    """
    words = [word for word in re.split(r"[\s_-]+|(?<=[a-z])(?=\d)", region.lower()) if word]
    joined = "".join(words)
    if joined in REGIONS or len(words) > 5:
        return joined
    return next((name for name in map("".join, permutations(words)) if name in REGIONS), joined)
