from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, strategies as st

from pricing_data.errors import BadMarket
from pricing_data.known_clouds import cloud_names
from pricing_data.market import (
    Market,
    api_region,
    closest,
    is_region_of,
    os_of_product,
    typing_errors,
)

words = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,12}", fullmatch=True)
regions = st.from_regex(r"[a-z]{2}-[a-z]{4}-[0-9]", fullmatch=True)


@given(
    st.builds(
        Market,
        st.sampled_from([c for c in cloud_names() if c != "azure"]),
        regions,
        words | st.just("-"),
        words,
        words,
    )
)
def test_a_market_prints_and_parses_without_loss(market: Market) -> None:
    assert Market.parse(str(market)) == market


def test_linux_is_the_default_and_not_printed() -> None:
    assert (
        str(Market.parse("aws/us-east-1/us-east-1a/c4.xlarge/linux"))
        == "aws/us-east-1/us-east-1a/c4.xlarge"
    )
    assert (
        str(Market.parse("azure/eastus/-/Standard_NC6s_v3/windows"))
        == "azure/eastus/-/Standard_NC6s_v3/windows"
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("aws/us-east-1/c4.xlarge", "3 parts"),
        ("ibm/us-east-1/-/c4.xlarge", "cloud 'ibm'"),
        ("aws//-/c4.xlarge", "region ''"),
        ("aws/us-east-1/us east/c4.xlarge", "zone 'us east'"),
        ("aws/us-east-1/-/", "instance type ''"),
        ("aws/us-east-1/-/c4.xlarge/", "os ''"),
        ("aws/-/-/c4.xlarge", "region '-'"),
    ],
)
def test_a_bad_text_says_which_part_is_wrong(text: str, part: str) -> None:
    with pytest.raises(BadMarket, match=part):
        Market.parse(text)


@pytest.mark.parametrize(
    ("written", "api"),
    [
        ("us_east", "eastus"),
        ("us_south_central", "southcentralus"),
        ("us_north_central", "northcentralus"),
        ("us_west_2", "westus2"),
        ("East US 2", "eastus2"),
        ("europe_west", "westeurope"),
        ("asia_southeast", "southeastasia"),
        ("UK South", "uksouth"),
        ("germany_west_central", "germanywestcentral"),
        ("eastus", "eastus"),
        ("newregion9", "newregion9"),
    ],
)
def test_azure_regions_get_the_spelling_of_the_api(written: str, api: str) -> None:
    assert api_region("azure", written) == api
    assert Market.of("Azure", written, "", "Standard_NC6").region == api


@pytest.mark.parametrize(
    ("cloud", "names"),
    [
        ("aws", ["us-east-1", "ap-southeast-2", "us-gov-west-1", "cn-north-1", "mx-central-1"]),
        ("gcp", ["us-east1", "europe-west12", "africa-south1", "me-central2"]),
        ("azure", ["eastus", "westus3", "us_east", "South Central US", "germanywestcentral"]),
    ],
)
def test_a_region_belongs_to_the_cloud_that_names_it_so(cloud: str, names: list[str]) -> None:
    for name in names:
        assert [other for other in ("aws", "gcp", "azure") if is_region_of(other, name)] == [cloud]


def test_products_are_separate_markets() -> None:
    products = [
        "Linux/UNIX",
        "Linux/UNIX (Amazon VPC)",
        "Windows",
        "SUSE Linux",
        "Red Hat Enterprise Linux",
    ]
    assert list(map(os_of_product, products)) == ["linux", "linux-vpc", "windows", "suse", "rhel"]


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("aws", True),
        ("aws/us-*", True),
        ("aws/us-east-1/*/c4.*", True),
        ("aws/*/*/c4.xlarge/*", True),
        ("aws/*/*/c4.xlarge/windows", False),
        ("*/*/us-east-1b/*", False),
        ("aws/us-east-1/us-east-1a", True),
        ("aws/us-east-1/us-east-1a/c4", False),
        ("aws/*/*/*/*/*", False),
    ],
)
def test_globs_match_part_by_part(pattern: str, fits: bool) -> None:
    assert Market.parse("aws/us-east-1/us-east-1a/c4.xlarge").matches(pattern) is fits


def test_a_glob_of_four_parts_means_linux() -> None:
    windows = Market.parse("aws/us-east-1/us-east-1a/c4.xlarge/windows")
    assert not windows.matches("aws/*/*/*")
    assert windows.matches("aws/*/*/*/*")
    assert windows.matches("aws")


@pytest.mark.parametrize(
    ("cloud", "region", "zone"),
    [
        ("aws", "us-west-2", "us-west-2-lax-1a"),
        ("aws", "us-west-2", "us-west-2-wl1-las-wlz-1"),
        ("aws", "us-gov-west-1", "us-gov-west-1b"),
        ("aws", "us-east-1", "use1-az4"),
        ("gcp", "us-central1", "us-central1-ai1a"),
        ("azure", "us_east", "1"),
        ("azure", "eastus", "eastus-2"),
        ("local", "sim-east", "anywhere"),
    ],
)
def test_a_row_may_name_every_kind_of_zone(cloud: str, region: str, zone: str) -> None:
    assert Market.of_row(cloud, region, zone, "t").zone == zone


@pytest.mark.parametrize("product", ["Linux!!", "Linux/", "-windows", "\x1b[31mLinux", "Linux\x00"])
def test_a_damaged_product_is_not_taken_for_a_known_one(product: str) -> None:
    with pytest.raises(BadMarket, match=r"^unknown product "):
        Market.of("aws", "us-east-1", None, "t", product)


@pytest.mark.parametrize(
    ("written", "known", "meant"),
    [
        ("us-esat-1", ("us-west-1", "us-east-1", "us-east-2"), ["us-east-1"]),
        ("us-est-1", ("us-west-1", "us-east-1"), ["us-east-1"]),
        ("c4.2xlareg", ("c4.xlarge", "c4.2xlarge", "c4.4xlarge"), ["c4.2xlarge"]),
        ("proteous", ("proteus", "standard"), ["proteus"]),
        ("elephant", ("proteus", "standard"), []),
        ("anything", (), []),
    ],
)
def test_the_name_with_the_fewest_typing_errors_comes_first(
    written: str, known: tuple[str, ...], meant: list[str]
) -> None:
    assert closest(written, known) == meant


def _one_error_away(word: str) -> set[str]:
    cuts = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    return (
        {a + b[1:] for a, b in cuts if b}
        | {a + c + b for (a, b), c in product(cuts, "ab")}
        | {a + c + b[1:] for (a, b), c in product(cuts, "ab") if b}
        | {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    )


def test_typing_errors_are_the_fewest_single_corrections() -> None:
    words = ["".join(letters) for length in range(4) for letters in product("ab", repeat=length)]
    for one, other in product(words, words):
        expected = 0 if one == other else 1 if other in _one_error_away(one) else None
        found = typing_errors(one, other)
        assert found == expected if expected is not None else found > 1
