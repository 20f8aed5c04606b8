"""Delimited files whose shape is wrong or odd: lines, fields, quotes, encodings."""

import codecs
import random

from bad_case import LOG, Case, Skip
from good_logs import HEADER, changed, csv_lines, fields, file, files, joined, replaced

GOOD = joined(csv_lines())
ONE_MALFORMED = {"malformed_row": 1}
NOISE = random.Random(8).randbytes(5000)
LATIN = changed(6, user="caf\xe9").decode().encode("latin-1")
WITH_NOTE = [*(f"{line},note" for line in csv_lines())]


def _unclosed(line: int) -> bytes:
    return replaced({line: fields(line, user='"u1')})


EMPTY = [
    Case("empty", file("log.csv", b""), where="log.csv:1", says="empty", process=True),
    Case("only newlines", file("log.csv", b"\n\n\n"), where="log.csv:1", says="blank"),
    Case("only white space", file("log.csv", b"   \t \n"), where="log.csv:1", says="blank"),
    Case("only a byte-order mark", file("log.csv", codecs.BOM_UTF8), where="log.csv:1", says="empty|blank"),
    Case("header only", file("log.csv", HEADER.encode() + b"\n"), where="log.csv:1", says="no rows", process=True),
    Case("header without newline", file("log.csv", HEADER.encode()), where="log.csv:1", says="no rows"),
    Case("header and blank lines", file("log.csv", HEADER.encode() + b"\n\n\n"), where="log.csv:1", says="no rows"),
    Case("blank line before header", file("log.csv", b"\n" + GOOD), where="log.csv:1", says="blank"),
    Case("empty second file", files({"a.csv": GOOD, "b.csv": b""}), where="b.csv:1", says="empty"),
]

COLUMNS = [
    Case(
        "missing column",
        file("log.csv", replaced({1: "usr,item,ts,event,price"})),
        where="log.csv:1",
        says="no column 'user'; did you mean 'usr'",
        process=True,
    ),
    Case(
        "missing column in second file",
        files({"a.csv": GOOD, "b.csv": replaced({1: "user,item,time_s,event,price"})}),
        where="b.csv:1",
        says="no column 'ts'",
    ),
    Case(
        "column in other case",
        file("log.csv", replaced({1: "User,item,ts,event,price"})),
        where="log.csv:1",
        says="did you mean 'User'",
    ),
    Case(
        "duplicated column",
        file("log.csv", replaced({1: "user,item,ts,event,user"})),
        where="log.csv:1",
        says="'user' occurs more than once",
    ),
    Case("duplicated column nobody uses", file("log.csv", joined([f"{line},x,x" for line in csv_lines()]))),
    Case(
        "spaces around column names",
        file("log.csv", replaced({1: " user , item, ts ,event,price"})),
    ),
    Case(
        "wrong separator asked for",
        file("log.csv", GOOD),
        options=(*LOG, "--delimiter", ";"),
        where="log.csv:1",
        says="no column 'user'",
    ),
    Case("header of one long word", file("log.csv", b"x" * 300_000 + b"\n" + GOOD), where="log.csv:1", says="column"),
    Case(
        "ten thousand columns",
        file("log.csv", joined([f"{line}{',c' * 10_000}" for line in csv_lines()])),
    ),
]

ROW_FAULTS = [
    Case(
        "short row",
        file("log.csv", replaced({7: "u1,i1"})),
        where="log.csv:7",
        says="found 2 fields, expected 5",
        skip=Skip(ONE_MALFORMED, [7]),
        process=True,
    ),
    Case(
        "long row",
        file("log.csv", replaced({7: fields(7) + ",more,and more"})),
        where="log.csv:7",
        says="found 7 fields, expected 5",
        skip=Skip(ONE_MALFORMED, [7]),
    ),
    Case(
        "first row short",
        file("log.csv", replaced({2: "u1,i1"})),
        where="log.csv:2",
        says="found 2 fields",
        skip=Skip(ONE_MALFORMED, [2]),
    ),
    Case(
        "many short rows, and blank lines between",
        file("log.csv", replaced({4: "\nu1", 9: "u1,i1\n\n", 15: "x", 16: "y"})),
        where="log.csv:5",
        says="found 1 fields",
        skip=Skip({"malformed_row": 4}, [5, 10, 18, 19]),
    ),
    Case(
        "short row, then a bad time behind it",
        file("log.csv", replaced({4: "u1", 9: fields(9, ts="soon")})),
        where="log.csv:4",
        says="found 1 fields",
        skip=Skip({"malformed_row": 1, "bad_time": 1}, [4, 9]),
    ),
    Case(
        "bad time behind a quoted line break in an unused column",
        file("log.csv", replaced({5: fields(5, price='"1\n2"'), 9: fields(9, ts="soon")})),
        where="log.csv:10",
        says="time 'soon'",
        skip=Skip({"bad_time": 1}, [10]),
    ),
    Case(
        "white space only line",
        file("log.csv", replaced({7: "   "})),
        where="log.csv:7",
        says="found 1 fields",
        skip=Skip(ONE_MALFORMED, [7]),
    ),
    Case(
        "short row beyond the first four megabytes",
        file("log.csv", joined([HEADER, *[fields(2, event="click")] * 150_000, "u1,i1", *csv_lines()[1:]])),
        where="log.csv:150002",
        says="found 2 fields",
        skip=Skip(ONE_MALFORMED, [150_002]),
    ),
    Case(
        "NUL in a row",
        file("log.csv", replaced({7: fields(7, user="u\0")})),
        where="log.csv:7",
        says="NUL",
        skip=Skip(ONE_MALFORMED, [7]),
        process=True,
    ),
    Case("NUL in the header", file("log.csv", replaced({1: "us\0er,item,ts"})), where="log.csv:1", says="NUL"),
    Case(
        "a line of 10 MB",
        file("log.csv", replaced({7: fields(7, user="u" * 10_000_000)})),
        where="log.csv:7",
        says="longer than",
        skip=Skip(ONE_MALFORMED, [7]),
        process=True,
    ),
    Case(
        "last line of 3 MB without newline",
        file("log.csv", GOOD + b"z" * 3_000_000),
        where="log.csv:22",
        says="longer than",
        skip=Skip(ONE_MALFORMED, [22]),
    ),
    Case("first line of 10 MB", file("log.csv", b"x" * 10_000_000), where="log.csv:1", says="longer than"),
    Case(
        "id with a line break",
        file("log.csv", replaced({7: fields(7, user='"u\n1"')})),
        where="log.csv:7",
        says="line break",
        skip=Skip({"malformed_id": 1}, [7]),
    ),
    Case(
        "id of 10 000 characters",
        file("log.csv", changed(7, item="i" * 10_000)),
        where="log.csv:7",
        says="over 1000 bytes",
        skip=Skip({"malformed_id": 1}, [7]),
    ),
]

QUOTES = [
    Case("quote open in first row", file("log.csv", _unclosed(2)), where="log.csv:2", says="quote", process=True),
    Case("quote open in a middle row", file("log.csv", _unclosed(9)), where="log.csv:9", says="quote"),
    Case("quote open in the last row", file("log.csv", _unclosed(21)), where="log.csv:21", says="quote"),
    Case("quote open in the header", file("log.csv", replaced({1: '"' + HEADER})), where="log.csv:1", says="."),
    Case(
        "quote open in an unused last column",
        file("log.csv", replaced({9: fields(9) + ',"no'}, WITH_NOTE)),
        where="log.csv:9",
        says="quote",
    ),
    Case(
        "quote open in the last field of all",
        file("log.csv", replaced({21: fields(21) + ',"no'}, WITH_NOTE)),
        where="log.csv:21",
        says="quote",
    ),
    Case("quote open, but quotes are plain text", file("log.csv", _unclosed(9)), options=(*LOG, "--no-quoting")),
    Case("quote in the middle of a field", file("log.csv", changed(9, price='3.5" disk'))),
    Case("two quotes in the middle of a field", file("log.csv", changed(9, price='3.5" or 5" disk'))),
    Case("doubled quotes", file("log.csv", changed(9, user='"u ""the"" 1"', item="i1"))),
]

ENCODINGS = [
    Case("UTF-8 with mark", file("log.csv", codecs.BOM_UTF8 + GOOD), rows_in=20),
    Case(
        "UTF-16 LE with mark",
        file("log.csv", codecs.BOM_UTF16_LE + GOOD.decode().encode("utf-16-le")),
        where="log.csv:1",
        says="pass --encoding utf-16",
        process=True,
    ),
    Case(
        "UTF-16 BE with mark",
        file("log.csv", codecs.BOM_UTF16_BE + GOOD.decode().encode("utf-16-be")),
        where="log.csv:1",
        says="pass --encoding utf-16",
    ),
    Case(
        "UTF-32 with mark",
        file("log.csv", GOOD.decode().encode("utf-32")),
        where="log.csv:1",
        says="pass --encoding utf-32",
    ),
    *(
        Case(f"{name} without mark", file("log.csv", GOOD.decode().encode(name)), where="log.csv:1", says="--encoding")
        for name in ("utf-16-le", "utf-16-be")
    ),
    Case("UTF-16, as told", file("log.csv", GOOD.decode().encode("utf-16")), (*LOG, "--encoding", "utf-16")),
    Case("UTF-16 BE, as told", file("log.csv", GOOD.decode().encode("utf-16-be")), (*LOG, "--encoding", "utf-16-be")),
    Case(
        "UTF-16 LE with mark, as told",
        file("log.csv", codecs.BOM_UTF16_LE + GOOD.decode().encode("utf-16-le")),
        options=(*LOG, "--encoding", "utf-16-le"),
        rows_in=20,
    ),
    Case(
        "UTF-16 cut in the middle of a character",
        file("log.csv", GOOD.decode().encode("utf-16")[:-1]),
        options=(*LOG, "--encoding", "utf-16"),
        where="log.csv:21",
        says="not utf-16|cut",
    ),
    Case(
        "Latin-1",
        file("log.csv", LATIN),
        where="log.csv:6",
        says="not UTF-8.*--encoding",
        skip=Skip(ONE_MALFORMED, [6]),
        process=True,
    ),
    Case("Latin-1, as told", file("log.csv", LATIN), options=(*LOG, "--encoding", "latin-1"), rows_in=20),
    Case(
        "mixed encodings",
        file("log.csv", changed(4, user="caf\xe9") + fields(3, user="caf\xe9").encode("latin-1") + b"\n"),
        where="log.csv:22",
        says="not UTF-8",
        skip=Skip(ONE_MALFORMED, [22]),
    ),
    Case(
        "bytes that cp1252 does not have",
        file("log.csv", changed(9, user="u?").replace(b"u?", b"u\x81")),
        options=(*LOG, "--encoding", "cp1252"),
        where="log.csv:9",
        says="not cp1252",
        skip=Skip(ONE_MALFORMED, [9]),
    ),
    Case("encoding nobody knows", file("log.csv", GOOD), (*LOG, "--encoding", "utf-9"), where="", says="utf-9.*utf-8"),
    Case("encoding that is no text", file("log.csv", GOOD), (*LOG, "--encoding", "zlib"), where="", says="encoding"),
    Case("unicode ids", file("log.csv", changed(9, user="用户😀", item="i1")), rows_in=20),
    Case("CRLF", file("log.csv", joined(csv_lines(), "\r\n")), rows_in=20),
    Case("CR", file("log.csv", joined(csv_lines(), "\r")), rows_in=20),
    Case("mixed line ends", file("log.csv", GOOD.replace(b"\n", b"\r\n", 5)), rows_in=20),
    Case(
        "short row among CRLF and CR",
        file("log.csv", replaced({7: "u1,i1"}).replace(b"\n", b"\r\n", 4).replace(b"buy,5.5\n", b"buy,5.5\r")),
        where="log.csv:7",
        says="found 2 fields",
        skip=Skip(ONE_MALFORMED, [7]),
    ),
    Case("last newline missing", file("log.csv", GOOD[:-1]), rows_in=20),
    Case("blank lines between", file("log.csv", joined(csv_lines(), "\n\n")), rows_in=20),
    Case("tabs", file("log.tsv", joined(csv_lines("\t"))), rows_in=20),
    Case(
        "short row among tabs",
        file("log.tsv", replaced({7: "u1\ti1"}, csv_lines("\t"))),
        where="log.tsv:7",
        says="found 2 fields",
        skip=Skip(ONE_MALFORMED, [7]),
    ),
    Case("random bytes", file("log.csv", NOISE), where="log.csv:1", says="NUL|UTF-8|longer", process=True),
    Case("random bytes behind the header", file("log.csv", GOOD + NOISE), where="log.csv:22", says="NUL|UTF-8"),
]

TEXT = [*EMPTY, *COLUMNS, *ROW_FAULTS, *QUOTES, *ENCODINGS]
