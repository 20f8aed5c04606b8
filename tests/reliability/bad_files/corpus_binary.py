"""Files that are not text: other formats, compression gone wrong, Parquet that is damaged or odd."""

import bz2
import datetime
import gzip
import io
import lzma
import zipfile

import pyarrow as pa
from bad_case import LOG, PLAIN, PRICED, Case, Skip
from good_logs import HEADER, ROWS, csv_lines, fields, file, gzipped, joined, parquet, parquet_bytes, replaced, zstd

GOOD = joined(csv_lines())
LARGE = joined([HEADER, *(fields(2 + k % 20, user=f"u{k * 7919 % 100_003}") for k in range(30_000))])
SHORT_ROW = replaced({7: "u1,i1"})
_NUMBERS = range(20)


def _zip() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        archive.writestr("log.csv", GOOD)
    return sink.getvalue()


def _bomb(unit: bytes, head: bytes = b"") -> bytes:
    """200 MB that fit in 200 kB: many gzip members of one megabyte each."""
    member = gzip.compress(unit * (1_000_000 // len(unit)), 9, mtime=0)
    return gzipped(head) + member * 200


def _refused(name: str, content: bytes, says: str, file_name: str = "log.csv") -> Case:
    return Case(name, file(file_name, content), where=f"{file_name}:1", says=says)


OTHER = [
    _refused("picture", b"\x89PNG\r\n\x1a\n" + bytes(100), "picture"),
    _refused("PDF", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", "PDF"),
    _refused("program", b"\x7fELF\x02\x01\x01" + bytes(100), "program"),
    _refused("zip archive", _zip(), "zip archive; unpack"),
    _refused("xz file", lzma.compress(GOOD), "xz file; unpack"),
    _refused("bzip2 file", bz2.compress(GOOD), "bzip2 file; unpack"),
    _refused("zip archive named gz", _zip(), "zip archive", "log.csv.gz"),
]

COMPRESSED = [
    Case("gzip", file("log.csv.gz", gzipped(GOOD)), rows_in=20),
    Case("gzip of two members", file("log.csv.gz", gzipped(GOOD[:200]) + gzipped(GOOD[200:])), rows_in=20),
    Case("gzip that is not named so", file("log.csv", gzipped(GOOD)), rows_in=20),
    Case("zstd", file("log.csv.zst", zstd(GOOD)), rows_in=20),
    Case("gzip of nothing", file("log.csv.gz", gzipped(b"")), where="log.csv.gz:1", says="empty"),
    Case("gzip of two bytes", file("log.csv.gz", b"\x1f\x8b"), where="log.csv.gz:1", says="damaged|cut|empty"),
    Case("gz that is text", file("log.csv.gz", GOOD), where="log.csv.gz:1", says="not compressed", process=True),
    Case("zst that is empty", file("log.csv.zst", b""), where="log.csv.zst:1", says="not compressed|empty"),
    *(
        Case(
            f"gzip cut at {share:.0%}",
            file("log.csv.gz", gzipped(LARGE)[: int(len(gzipped(LARGE)) * share)]),
            where="log.csv.gz:1",
            says="damaged or cut off.*fetch",
            process=share == 0.5,
        )
        for share in (0.1, 0.5, 0.999)
    ),
    Case(
        "gzip with a bad checksum",
        file("log.csv.gz", gzipped(GOOD)[:-8] + b"\1\2\3\4" + gzipped(GOOD)[-4:]),
        where="log.csv.gz:1",
        says="damaged",
    ),
    Case(
        "gzip with a flipped bit",
        file("log.csv.gz", gzipped(GOOD)[:60] + b"\xff\xff" + gzipped(GOOD)[62:]),
        where="log.csv.gz:1",
        says="damaged",
    ),
    Case(
        "gzip with rubbish behind",
        file("log.csv.gz", gzipped(GOOD) + b"rubbish" * 9),
        where="log.csv.gz:1",
        says="damaged",
    ),
    Case(
        "zstd cut off",
        file("log.csv.zst", zstd(LARGE)[: len(zstd(LARGE)) // 2]),
        where="log.csv.zst:1",
        says="damaged or cut off",
        process=True,
    ),
    Case("zstd cut off in a small file", file("log.csv.zst", zstd(GOOD)[:-5]), where="log.csv.zst:1", says="damaged"),
    Case("gzip in gzip", file("log.csv.gz", gzipped(gzipped(GOOD))), where="log.csv.gz:1", says="NUL|UTF-8"),
    Case("gzip bomb of zeros", file("log.csv.gz", _bomb(b"\0")), where="log.csv.gz:1", says="longer|NUL", process=True),
    Case(
        "gzip bomb of zeros behind the header",
        file("log.csv.gz", _bomb(b"\0", GOOD)),
        where="log.csv.gz:22",
        says="longer|NUL",
        skip=Skip({"malformed_row": 1}, [22]),
    ),
    Case("gzip bomb of newlines", file("log.csv.gz", _bomb(b"\n", GOOD)), rows_in=20, process=True),
    Case(
        "short row in gzip",
        file("log.csv.gz", gzipped(SHORT_ROW)),
        where="log.csv.gz:7",
        says="found 2 fields",
        skip=Skip({"malformed_row": 1}, [7]),
    ),
    Case(
        "short row in zstd",
        file("log.csv.zst", zstd(SHORT_ROW)),
        where="log.csv.zst:7",
        says="found 2 fields",
        skip=Skip({"malformed_row": 1}, [7]),
    ),
]


def _times(kind: pa.DataType) -> pa.Array:
    if pa.types.is_date(kind):
        return pa.array([datetime.date(2017, 7, 1 + k) for k in _NUMBERS], kind)
    return pa.array([datetime.datetime(2017, 7, 14, 2, k) for k in _NUMBERS], kind)


_KINDS = [
    *map(pa.timestamp, ("s", "ms", "us", "ns")),
    pa.timestamp("us", "Europe/Paris"),
    pa.timestamp("s", "UTC"),
    pa.timestamp("ns", "UTC"),
    pa.date32(),
    pa.date64(),
]
_INVALID = pa.Array.from_buffers(
    pa.string(),
    20,
    [
        None,
        pa.py_buffer(bytes(pa.array(range(0, 42, 2), pa.int32()).buffers()[1])),
        pa.py_buffer(b"u1" * 8 + b"\xff\xfe" + b"u2" * 11),
    ],
)

PARQUET = [
    Case("Parquet", parquet(), rows_in=20),
    *(Case(f"Parquet times {kind}", parquet(ts=_times(kind)), rows_in=20) for kind in _KINDS),
    Case("Parquet without rows", parquet(rows=slice(0, 0)), where="log.parquet:1", says="no rows"),
    Case(
        "Parquet cut off",
        file("log.parquet", parquet_bytes()[:-100]),
        where="log.parquet:1",
        says="Parquet",
        process=True,
    ),
    Case("Parquet of its first bytes", file("log.parquet", b"PAR1"), where="log.parquet:1", says="Parquet"),
    Case(
        "Parquet that lies about its end",
        file("log.parquet", b"PAR1" + b"\xff" * 500 + b"PAR1"),
        where="log.parquet:1",
        says="Parquet",
    ),
    Case(
        "Parquet with pages overwritten",
        file("log.parquet", b"PAR1" + bytes(400) + parquet_bytes()[404:]),
        where="log.parquet:1",
        says="damaged|Parquet",
    ),
    Case("Parquet that is text", file("log.parquet", GOOD), where="log.parquet:1", says="not a Parquet file"),
    Case("Parquet in gzip", file("log.parquet.gz", gzipped(parquet_bytes())), where="log.parquet.gz:1", says="Parquet"),
    Case("Parquet named CSV", file("log.csv", parquet_bytes()), rows_in=20),
    Case("Parquet column missing", parquet(), (*LOG, "--user", "usr"), where="log.parquet:1", says="mean 'user'"),
    *(
        Case(f"Parquet user column of {array.type}", parquet(user=array), where="log.parquet:1", says="'user' holds")
        for array in (
            pa.array([{"a": 1}] * 20),
            pa.array([[1, 2]] * 20),
            pa.array([b"\xff"] * 20),
            pa.nulls(20),
            pa.array([1] * 20, pa.time32("s")),
            pa.array([1] * 20, pa.float16()),
            pa.array([1] * 20, pa.decimal256(50, 2)),
        )
    ),
    Case("Parquet users float", parquet(user=pa.array([float(k % 4) for k in _NUMBERS])), rows_in=20),
    Case("Parquet users NaN", parquet(user=pa.array([float("nan"), *[1.0] * 19])), rows_in=20),
    Case(
        "Parquet users dictionary",
        parquet(user=pa.array([row["user"] for row in ROWS]).dictionary_encode()),
        rows_in=20,
    ),
    Case(
        "Parquet users not UTF-8",
        parquet(user=_INVALID),
        where="log.parquet:9",
        says="UTF-8|unicode|text",
    ),
    Case("Parquet users with NUL", parquet(user=pa.array(["u\0x", *["u1"] * 19])), rows_in=20),
    Case("Parquet users null", parquet(user=pa.array([None, *["u1"] * 19])), dropped={"blank_user": 1}, rows_in=20),
    Case(
        "Parquet time null",
        parquet(ts=pa.array([None if k == 8 else 1_500_000_000 + k for k in _NUMBERS])),
        where="log.parquet:9",
        says="time",
        skip=Skip({"bad_time": 1}, [9]),
    ),
    Case(
        "Parquet time beyond int64",
        parquet(ts=pa.array([2**64 - 1 if k == 8 else 1_500_000_000 + k for k in _NUMBERS], pa.uint64())),
        where="log.parquet:9",
        says="time '18446744073709551615'",
        skip=Skip({"bad_time": 1}, [9]),
    ),
    *(
        Case(
            f"Parquet time beyond the calendar, {kind}",
            parquet(ts=pa.array([2**62 if k == 8 else k for k in _NUMBERS], pa.int64()).cast(kind)),
            where="log.parquet:9",
            says="time",
            skip=Skip({"bad_time": 1}, [9]),
        )
        for kind in (pa.timestamp("ms"), pa.timestamp("ms", "UTC"))
    ),
    Case(
        "Parquet time NaN in the first row",
        parquet(ts=pa.array([float("nan"), *[1.5e9] * 19])),
        where="log.parquet:1",
        says="time",
        skip=Skip({"bad_time": 1}, [1]),
    ),
    Case("Parquet times of text nobody reads", parquet(ts=pa.array(["soon"] * 20)), where="log.parquet:1", says="soon"),
    Case(
        "Parquet price NaN",
        parquet(price=pa.array([float("nan") if k == 8 else 1.0 for k in _NUMBERS])),
        PRICED,
        where="log.parquet:9",
        says="reward",
        skip=Skip({"bad_reward": 1}, [9]),
    ),
    Case("Parquet price a date", parquet(price=_times(pa.date32())), PRICED, where="log.parquet:1", says="reward"),
    Case("Parquet price a truth value", parquet(price=pa.array([True, False] * 10)), PRICED, rows_in=20),
    Case("Parquet column with a dot", parquet(**{"a.b": pa.array(["u1"] * 20)}), (*PLAIN, "--user", "a.b"), rows_in=20),
]

BINARY = [*OTHER, *COMPRESSED, *PARQUET]
