"""JSON lines that are wrong or odd."""

import json

from bad_case import KEEP_ALL, LOG, PRICED, Case, Skip
from good_logs import ROWS, changed_json, file, gzipped, joined, json_lines, replaced

GOOD = joined(json_lines())
ONE_MALFORMED = {"malformed_row": 1}
INJECTION = "'; DROP TABLE staged; --"


def _malformed(name: str, line: str) -> Case:
    return Case(
        f"JSON {name}",
        file("log.jsonl", replaced({9: line}, json_lines())),
        where="log.jsonl:9",
        says="row",
        skip=Skip(ONE_MALFORMED, [9]),
    )


def _renamed(name: str) -> Case:
    """A user column of another name, which must be found."""
    rows = [json.dumps({name: row["user"], **{key: row[key] for key in ("item", "ts")}}) for row in ROWS]
    options = ("--user", name, "--item", "item", "--time", "ts", *KEEP_ALL)
    return Case(f"JSON column named {name!r}", file("log.jsonl", joined(rows)), options, rows_in=20)


JSON = [
    Case("JSON empty", file("log.jsonl", b""), where="log.jsonl:1", says="empty"),
    Case(
        "JSON array of all",
        file("log.json", json.dumps(ROWS).encode()),
        where="log.json:1",
        says="one object per line",
        process=True,
    ),
    Case(
        "JSON one object over many lines",
        file("log.json", json.dumps(ROWS[0], indent=1).encode()),
        where="log.json:1",
        says="one object per line",
    ),
    Case("JSON first line broken", file("log.jsonl", b'{"user": \n' + GOOD), where="log.jsonl:1", says="JSON object"),
    Case(
        "JSON 10 000 deep at first",
        file("log.jsonl", b"[" * 10_000 + b"]" * 10_000 + b"\n" + GOOD),
        where="log.jsonl:1",
        says="JSON object",
        process=True,
    ),
    Case("CSV named JSON", file("log.jsonl", b"user,item\n1,2\n"), where="log.jsonl:1", says="JSON object"),
    Case("JSON named CSV", file("log.csv", GOOD), where="log.csv:1", says="no column 'user'"),
    _malformed("invalid in the middle", '{"user": "u1", "item": '),
    _malformed("array in the middle", "[1, 2, 3]"),
    _malformed("number in the middle", "42"),
    _malformed("null in the middle", "null"),
    _malformed("text behind the object", '{"user": "u1"} x'),
    _malformed("two objects in a line", '{"user": "u1"}{"user": "u2"}'),
    _malformed("single quotes", "{'user': 'u1'}"),
    _malformed("lone surrogate", '{"user": "\\ud800", "item": "i1", "ts": 1500000000, "event": "buy"}'),
    Case(
        "JSON NUL in one line and a broken line behind it",
        file("log.jsonl", replaced({9: '{"user": "\0"}', 12: "{"}, json_lines())),
        where="log.jsonl:9",
        says="NUL",
        skip=Skip({"malformed_row": 2}, [9, 12]),
    ),
    _malformed("NUL", '{"user": "\0"}'),
    _malformed("10 MB line", json.dumps({"user": "u" * 10_000_000})),
    Case(
        "JSON 10 000 deep in an unused value",
        file(
            "log.jsonl",
            replaced(
                {9: '{"user":"u1","item":"i1","ts":1500000000,"event":"buy","x":' + "[" * 10_000 + "]" * 10_000 + "}"},
                json_lines(),
            ),
        ),
        rows_in=20,
    ),
    Case(
        "JSON user missing",
        file("log.jsonl", replaced({9: '{"item": "i1", "ts": 1500000000, "event": "buy"}'}, json_lines())),
        dropped={"blank_user": 1},
        rows_in=20,
    ),
    Case("JSON user null", file("log.jsonl", changed_json(9, user=None)), dropped={"blank_user": 1}, rows_in=20),
    Case(
        "JSON time missing",
        file("log.jsonl", replaced({9: '{"user": "u1", "item": "i1", "event": "buy"}'}, json_lines())),
        where="log.jsonl:9",
        says="time",
        skip=Skip({"bad_time": 1}, [9]),
        process=True,
    ),
    Case(
        "JSON time a NaN literal",
        file("log.jsonl", changed_json(9, ts=float("nan"))),
        where="log.jsonl:9",
        says="time|row",
    ),
    Case(
        "JSON price a NaN literal",
        file("log.jsonl", changed_json(9, price=float("nan"))),
        options=PRICED,
        where="log.jsonl:9",
        says="reward|row",
    ),
    Case(
        "JSON price 1e400",
        file("log.jsonl", replaced({9: json_lines()[8].replace("8.5", "1e400")}, json_lines())),
        options=PRICED,
        where="log.jsonl:9",
        says="reward|row",
    ),
    Case(
        "JSON time beyond int64",
        file("log.jsonl", changed_json(9, ts=10**30)),
        where="log.jsonl:9",
        says="time",
        skip=Skip({"bad_time": 1}, [9]),
    ),
    Case(
        "JSON time a list",
        file("log.jsonl", changed_json(9, ts=[1])),
        where="log.jsonl:9",
        says="time",
        skip=Skip({"bad_time": 1}, [9]),
    ),
    Case("JSON objects as ids", file("log.jsonl", changed_json(9, user={"id": 1})), rows_in=20),
    Case("JSON numbers and booleans as ids", file("log.jsonl", changed_json(9, user=12345678901234567890)), rows_in=20),
    Case(
        "JSON keys twice",
        file("log.jsonl", replaced({9: json_lines()[8][:-1] + ', "user": "u9"}'}, json_lines())),
        rows_in=20,
    ),
    Case("JSON id with an escaped NUL", file("log.jsonl", changed_json(9, user="a\0b")), rows_in=20),
    Case("JSON id with a line break", file("log.jsonl", changed_json(9, user="a\nb")), rows_in=20),
    Case("JSON blank lines", file("log.jsonl", b"\n\n".join(GOOD.splitlines())), rows_in=20),
    Case(
        "JSON bad time behind blank lines",
        file("log.jsonl", replaced({9: "\n\n" + json.dumps({**ROWS[8], "ts": "soon"})}, json_lines())),
        where="log.jsonl:11",
        says="time 'soon'",
        skip=Skip({"bad_time": 1}, [11]),
    ),
    Case(
        "JSON column missing",
        file("log.jsonl", GOOD),
        (*LOG, "--user", "usr"),
        where="log.jsonl:1",
        says="no column 'usr'; did you mean 'user'",
    ),
    Case("JSON in gzip", file("log.jsonl.gz", gzipped(GOOD)), rows_in=20),
    Case("JSON with a mark and CRLF", file("log.jsonl", b"\xef\xbb\xbf" + joined(json_lines(), "\r\n")), rows_in=20),
    *map(_renamed, ('us"er', "us'er", "us er", "$.user", "a.b", "*", "a[0]", "back\\slash", "", INJECTION, "用户")),
]
