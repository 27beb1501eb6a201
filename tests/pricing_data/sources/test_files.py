from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from pricing_data.errors import BadInput
from pricing_data.fetched_rows import FetchedRows
from pricing_data.market import Market
from pricing_data.sources import files
from pricing_data.sources.files import FileBatch, read
from pricing_data.store.table import PriceTable
from pricing_data.units import LATEST, parse_time
from tests.pricing_data.store.test_table import contents

HEADER = "timestamp,cloud,region,zone,instance_type,product,spot_price"
GOOD = "2016-02-25T00:35:34Z,aws,us-east-1,us-east-1a,c1.medium,Linux/UNIX,0.0162"


def written(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def whole(path: Path, latest: int = LATEST) -> FileBatch:
    """All batches of a file, joined."""
    batches = list(read(path, latest))
    bad = tuple(row for batch in batches for row in batch.bad)
    rows = sum(batch.rows for batch in batches)
    return FileBatch(
        FetchedRows.joined(p.fetched for p in batches),
        batches[0].layout,
        rows,
        bad,
        batches[-1].position,
    )


def prices_in(path: Path) -> dict[tuple[str, int], int]:
    return contents(PriceTable.of(whole(path).fetched.prices))


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (
            "2016-13-25T00:35:34Z,aws,us-east-1,us-east-1a,c1.medium,Linux/UNIX,0.0162",
            "time '2016-13-25T00:35:34Z'",
        ),
        (
            "2016-02-30T00:35:34Z,aws,us-east-1,us-east-1a,c1.medium,Linux/UNIX,0.0162",
            "time '2016-02-30T00:35:34Z'",
        ),
        (
            "1970-01-01T00:00:00Z,aws,us-east-1,us-east-1a,c1.medium,Linux/UNIX,0.0162",
            "years 2008 to 2099",
        ),
        (",aws,us-east-1,us-east-1a,c1.medium,Linux/UNIX,0.0162", "time ''"),
        (
            "2016-02-25T00:35:34Z,aws,us-east-1,us-east-1a,c1.medium,Linux/UNIX,-0.0162",
            "spot price '-0.0162'",
        ),
        ("2016-02-25T00:35:34Z,aws,us-east-1,us-east-1a,c1.medium,Linux/UNIX,0", "spot price '0'"),
        (
            "2016-02-25T00:35:34Z,aws,us-east-1,us-east-1a,c1.medium,Linux/UNIX,123456",
            "spot price '123456'",
        ),
        ("2016-02-25T00:35:34Z,aws,us-east-1,us-east-1a,c1.medium,Linux/UNIX,", "spot price ''"),
        (
            "2016-02-25T00:35:34Z,aws,us-east-1,us-east-1a,c1.medium,Linux/UNIX,n/a",
            "spot price 'n/a'",
        ),
        (
            "2016-02-25T00:35:34Z,ibm,us-east-1,us-east-1a,c1.medium,Linux/UNIX,0.0162",
            "cloud 'ibm'",
        ),
        ("2016-02-25T00:35:34Z,aws,,us-east-1a,c1.medium,Linux/UNIX,0.0162", "region ''"),
        ("2016-02-25T00:35:34Z,aws,us-east-1,us-east-1a,,Linux/UNIX,0.0162", "instance type ''"),
        (
            "2016-02-25T00:35:34Z,aws,us-east-1,us-east-1a,c1.medium,0.0162",
            "6 cells where the header has 7",
        ),
        (f"{GOOD},more", "8 cells where the header has 7"),
        (GOOD.replace("0.0162", "1e-999999999"), "below a nano-dollar"),
        (
            GOOD.replace("0.0162", "1e999999999"),
            "spot price '1e999999999' is not above 0 and at most",
        ),
        (GOOD.replace("2016", "2098"), "time 2098-02-25T00:35:34Z is in the future"),
        (
            GOOD.replace("us-east-1a", "us-central1-a"),
            "'us-central1-a' is not a zone of aws/us-east-1",
        ),
        (GOOD.replace("us-east-1a", "us-west-2a"), "'us-west-2a' is not a zone of aws/us-east-1"),
        (
            GOOD.replace("us-east-1,us-east-1a", "us-central1,"),
            "'us-central1' is not a region of aws",
        ),
        (GOOD.replace("aws", "gcp"), "'us-east-1' is not a region of gcp"),
        (GOOD.replace("Linux/UNIX", "Linux!!"), "product 'Linux!!'"),
        (GOOD.replace("Linux/UNIX", "Linux/"), "product 'Linux/'"),
        (f"{GOOD}{'9' * (2 << 20)}", "has more than 1,048,576 bytes"),
        ("2016-02-25T00:35:34Z,aws,us-east-1,us-\udcffast-1a,c1.medium,Linux/UNIX,0.0162", "zone"),
    ],
)
def test_a_bad_row_is_reported_with_its_line_and_the_good_rows_are_kept(
    tmp_path: Path, row: str, why: str
) -> None:
    others = [GOOD.replace("00:35:34", f"01:{n // 60:02}:{n % 60:02}") for n in range(500)]
    lines = [HEADER, *others[:300], row, *others[300:]]
    path = tmp_path / "prices.csv"
    path.write_bytes("\n".join(lines).encode(errors="surrogateescape"))
    found = whole(path, parse_time("2026-11-21"))
    assert len(found.fetched.prices) == 500
    assert found.rows == 501
    assert [bad.where for bad in found.bad] == ["line 302"]
    assert why in found.bad[0].why


@pytest.mark.parametrize(
    "row",
    [
        "2016-02-25 00:35:34,aws,us-east-1,us-east-1a,c1.medium,Linux/UNIX,0.0162",
        "2016-02-25T00:35:34.000Z,aws,us-east-1,us-east-1a,c1.medium,Linux/UNIX,0.016200",
        "2016-02-25T01:35:34+01:00,aws,us-east-1,us-east-1a,c1.medium,Linux/UNIX,1.62e-2",
        " 2016-02-25T00:35:34Z , AWS , us-east-1,us-east-1a ,c1.medium, Linux/UNIX , 0.0162 ",
        '"2016-02-25T00:35:34Z","aws","us-east-1","us-east-1a","c1.medium","Linux/UNIX","0.0162"',
        f"{GOOD}\r",
    ],
)
def test_an_unusual_spelling_is_the_same_row(tmp_path: Path, row: str) -> None:
    found = whole(written(tmp_path / "prices.csv", HEADER, GOOD.replace("00:35", "00:30"), row))
    assert found.bad == ()
    plain = prices_in(written(tmp_path / "plain.csv", HEADER, GOOD.replace("00:35", "00:30"), GOOD))
    assert contents(PriceTable.of(found.fetched.prices)) == plain


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["when,what", "1,2"], r"columns 'when, what' match no layout.*missing: timestamp, cloud"),
        ([GOOD], "match no layout"),
        (["\x00\x01\x02"], "match no layout"),
        ([HEADER + ",spot_price", GOOD + ",1"], "column spot_price appears more than once"),
        (["{"], "is not complete JSON"),
        (['{"Instances": []}'], "without SpotPriceHistory"),
        (['{"SpotPriceHistory": {}}'], "is not a list"),
    ],
)
def test_an_unknown_layout_is_rejected_with_the_expected_columns(
    tmp_path: Path, lines: list[str], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        list(read(written(tmp_path / "file", *lines)))


def test_empty_missing_and_unreadable_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name, message in (
        ("empty", "is empty"),
        ("missing", "No such file"),
        ("", "Is a directory"),
    ):
        with pytest.raises(BadInput, match=message):
            list(read(tmp_path / name))


@pytest.mark.parametrize("cut", [0.3, 0.6, 0.95, 0.999])
def test_a_truncated_gzip_yields_its_whole_rows_then_fails(tmp_path: Path, cut: float) -> None:
    rows = [
        GOOD.replace("00:35:34", f"{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}")
        for n in range(20_000)
    ]
    packed = gzip.compress("\n".join([HEADER, *rows]).encode())
    path = tmp_path / "prices.csv.gz"
    path.write_bytes(packed[: int(len(packed) * cut)])
    with pytest.raises(BadInput, match="is a gzip file that breaks off"):
        list(read(path))
    found = list(before_the_error(path))
    assert all(batch.bad == () for batch in found)
    assert 0 < sum(batch.rows for batch in found) < 20_000


def before_the_error(path: Path) -> list[FileBatch]:
    batches: list[FileBatch] = []
    try:
        for batch in read(path):
            # The batches before the error are what is wanted.
            batches.append(batch)  # noqa: PERF402
    except BadInput:
        pass
    return batches


def test_damaged_gzip_is_reported(tmp_path: Path) -> None:
    packed = bytearray(
        gzip.compress(
            "\n".join([HEADER, *(GOOD.replace("34Z", f"{n:02}Z") for n in range(60))]).encode()
        )
    )
    packed[len(packed) // 2] ^= 0xFF
    (tmp_path / "prices.gz").write_bytes(packed)
    with pytest.raises(BadInput, match="has damaged gzip data after"):
        list(read(tmp_path / "prices.gz"))


@pytest.mark.parametrize("tail", [b"\x00" * 700, b"not gzip", b"\x1fx"])
def test_bytes_after_the_end_of_a_gzip_cost_no_row(tmp_path: Path, tail: bytes) -> None:
    rows = [
        GOOD.replace("00:35:34", f"{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}")
        for n in range(20_000)
    ]
    path = tmp_path / "prices.csv.gz"
    path.write_bytes(gzip.compress("\n".join([HEADER, *rows]).encode()) + tail)
    if tail.strip(b"\x00"):
        with pytest.raises(
            BadInput, match=r"has other bytes after the end of its gzip data .* were kept"
        ):
            list(read(path))
    assert sum(batch.rows for batch in before_the_error(path)) == 20_000


_BOMB_READER = """
import resource, sys
from pathlib import Path
from pricing_data.sources.files import read

list(read(Path(sys.argv[1])))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for path in sys.argv[2:]:
    found = list(read(Path(path)))
    print(sum(len(batch.fetched.prices) for batch in found), sum(len(batch.bad) for batch in found))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_files_of_blank_or_endless_lines_take_little_memory(tmp_path: Path) -> None:
    small = written(tmp_path / "small.csv", HEADER, GOOD)
    bombs = [b"\n" * (32 << 20), b"x" * (96 << 20)]
    for number, bomb in enumerate(bombs):
        with gzip.open(tmp_path / f"{number}.gz", "wb", compresslevel=1) as file:
            for part in (f"{HEADER}\n{GOOD}\n".encode(), bomb, f"\n{GOOD}\n".encode()):
                file.write(part)
    paths = [small, *(tmp_path / f"{number}.gz" for number in range(len(bombs)))]
    ended = subprocess.run(
        [sys.executable, "-c", _BOMB_READER, *paths], check=True, capture_output=True, text=True
    )
    blank, endless, megabytes = ended.stdout.splitlines()
    assert (blank, endless) == ("2 0", "2 1")
    assert int(megabytes) < 150


def test_a_huge_json_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_LONGEST_JSON", 1 << 20)
    with pytest.raises(BadInput, match="is JSON of more than 1 MB; export it in parts"):
        list(read(written(tmp_path / "big.json", "[" + " " * (3 << 20))))


def test_several_gzip_members_are_one_file(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes(gzip.compress(f"{HEADER}\n".encode()) + gzip.compress(f"{GOOD}\n".encode()))
    assert len(whole(path).fetched.prices) == 1


def test_blocks_are_cut_at_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [GOOD.replace("00:35:34", f"01:{n // 60:02}:{n % 60:02}") for n in range(1000)]
    rows[700] = rows[700].replace("0.0162", "oops")
    path = written(tmp_path / "prices.csv", "\ufeff" + HEADER, *rows)
    at_once = whole(path)
    monkeypatch.setattr(files, "_CHUNK", 1000)
    monkeypatch.setattr(files, "_BLOCK", 5000)
    in_steps = whole(path)
    assert len(list(read(path))) > 10
    assert contents(PriceTable.of(in_steps.fetched.prices)) == contents(
        PriceTable.of(at_once.fetched.prices)
    )
    assert in_steps.bad == at_once.bad
    assert in_steps.bad[0].where == "line 702"


def test_the_aws_command_lines_json(tmp_path: Path) -> None:
    record = {
        "AvailabilityZone": "us-west-2-lax-1a",
        "InstanceType": "c5.large",
        "ProductDescription": "Windows",
        "SpotPrice": "0.1234000",
        "Timestamp": "2024-01-02T03:04:05+00:00",
    }
    broken = {**record, "SpotPrice": "-1"}
    incomplete = {"InstanceType": "c5.large"}
    path = tmp_path / "history.json"
    path.write_text(
        json.dumps({"SpotPriceHistory": [record, broken, incomplete, 5], "NextToken": ""}, indent=4)
    )
    found = whole(path)
    market = Market("aws", "us-west-2", "us-west-2-lax-1a", "c5.large", "windows")
    assert found.fetched.prices.markets == (market,)
    assert found.fetched.prices.prices.tolist() == [123_400_000]
    assert found.fetched.prices.times.tolist() == [parse_time("2024-01-02T03:04:05Z")]
    assert [bad.where for bad in found.bad] == ["record 2", "record 3", "record 4"]


def test_snapshots_with_both_prices_give_both(tmp_path: Path) -> None:
    path = written(
        tmp_path / "gcp.csv",
        "timestamp,cloud,region,zone,instance_type,on_demand_price,spot_price,commit",
        "2024-01-26T10:03:25Z,gcp,africa-south1,,a2-highgpu-1g,4.80478794,1.441435835,3ed8be833b",
        "2022-02-09T00:00:00Z,gcp,asia-east1,,a2-highgpu-1g,3.65768,,d4890e9324",
        "2022-02-10T00:00:00Z,gcp,asia-east1,,a2-highgpu-1g,0.0,1.5,d4890e9324",
    )
    found = whole(path)
    assert found.fetched.prices.prices.tolist() == [1_441_435_835, 1_500_000_000]
    assert [price.price for price in found.fetched.on_demand] == [4_804_787_940, 3_657_680_000]
    assert [str(bad) for bad in found.bad] == [
        "line 4: on-demand price '0.0' is not above 0 and at most 10000 US dollars per hour"
    ]


def test_every_layout_of_the_shared_records_is_understood(shared_data: Path) -> None:
    files = sorted([*shared_data.glob("prices/*.gz"), *shared_data.glob("interruptions/*.gz")])
    assert len(files) == 7
    for path in files:
        with gzip.open(path, "rt") as lines:
            rows = sum(1 for _ in lines) - 1
        found = whole(path)
        assert found.rows == rows
        assert len(found.bad) <= 4
        assert len(found.fetched) >= rows - len(found.bad)


def test_the_2016_file_reads_as_a_plain_reader_reads_it(shared_data: Path) -> None:
    path = shared_data / "prices" / "aws_us-east-1_2016-02-24_2016-04-05.csv.gz"
    with gzip.open(path, "rt", newline="") as file:
        plain = {
            (
                f"aws/us-east-1/{row['zone']}/{row['instance_type']}",
                parse_time(row["timestamp"]),
            ): round(float(row["spot_price"]) * 10**9)
            for row in csv.DictReader(file)
        }
    assert prices_in(path) == plain


@pytest.mark.parametrize(
    ("row", "lost"),
    [
        ('"' + GOOD, 1),
        ('2016-02-25T00:35:34Z,aws,us-east-1,"us-east-1a,c1.medium,Linux/UNIX,0.0162', 1),
        ('2016-02-25T00:35:34Z,aws,us-east-1,us-east-1a,"c1\nmedium",Linux/UNIX,0.0162', 2),
        (GOOD.replace("Z,aws", "Z,aws\r"), 1),
        ("x" * 200_000, 1),
    ],
)
def test_an_unclosed_quote_costs_one_row_only(tmp_path: Path, row: str, lost: int) -> None:
    others = [GOOD.replace("00:35:34", f"01:{n // 60:02}:{n % 60:02}") for n in range(500)]
    path = written(tmp_path / "prices.csv", HEADER, *others[:300], row, *others[300:])
    found = whole(path, parse_time("2026-11-21"))
    assert len(found.fetched.prices) == 500
    assert [bad.where for bad in found.bad] == [f"line {302 + i}" for i in range(lost)]


def test_mixed_line_endings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes(
        "\r\n".join([HEADER, GOOD, ""]).encode() + f"{GOOD.replace('34Z', '35Z')}\n".encode()
    )
    assert len(whole(path).fetched.prices) == 2
    path.write_bytes("\r".join([HEADER, GOOD]).encode())
    with pytest.raises(BadInput, match=r"is not a row of CSV|match no layout"):
        list(read(path))


def test_no_row_of_a_damaged_gzip_is_used(tmp_path: Path) -> None:
    rows = [
        GOOD.replace("00:35:34", f"{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}")
        for n in range(20_000)
    ]
    packed = gzip.compress("\n".join([HEADER, *rows]).encode())
    path = tmp_path / "prices.csv.gz"
    for at in range(len(packed) // 5, len(packed) - 20, len(packed) // 7):
        path.write_bytes(packed[:at] + bytes([packed[at] ^ 8]) + packed[at + 1 :])
        assert before_the_error(path) == []


def test_json_with_a_byte_order_mark_is_json(tmp_path: Path) -> None:
    path = tmp_path / "history.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps({"SpotPriceHistory": []}).encode())
    assert whole(path).rows == 0
    path.write_text("[" * 100_000)
    with pytest.raises(BadInput, match="is not complete JSON"):
        list(read(path))


def test_truncated_json_yields_its_whole_records(tmp_path: Path) -> None:
    record = {
        "AvailabilityZone": "us-east-1a",
        "InstanceType": "c5.large",
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": "0.1",
        "Timestamp": "2024-01-02T03:04:05Z",
    }
    later = [{**record, "Timestamp": f"2024-01-02T03:04:{second:02}Z"} for second in range(5)]
    whole_text = json.dumps({"SpotPriceHistory": later}, indent=4)
    path = tmp_path / "history.json"
    path.write_text(whole_text[: whole_text.rindex("Timestamp")])
    (batch,) = before_the_error(path)
    assert (batch.rows, len(batch.fetched.prices), batch.bad) == (4, 4, ())
    with pytest.raises(BadInput, match="is not complete JSON"):
        list(read(path))
