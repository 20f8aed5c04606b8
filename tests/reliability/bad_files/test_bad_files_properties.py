"""Promises 8 and 9 on generated logs: rows in = kept + dropped by reason, kept rows as a plain reference has them.

`ECOC_FUZZ_SECONDS` lengthens the search and makes it random; without, the examples are always the same few.
"""

import json
import os
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bad_case import check_rows
from good_logs import csv_lines, gzipped, joined, json_lines, parquet_bytes, zstd
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import ecoc
from ecoc.data.describe import summary

SECONDS = int(os.environ.get("ECOC_FUZZ_SECONDS", "0"))
PHASES = list(Phase) if SECONDS else [Phase.explicit, Phase.generate]  # making examples small takes minutes
FUZZ = settings(
    max_examples=max(45, SECONDS * 3),
    deadline=None,
    database=None,
    derandomize=not SECONDS,
    print_blob=True,
    phases=PHASES,
)
REWARDS = {"click": 1.0, "buy": 3.0, "view": "drop"}
Row = tuple[str, str, str, str]
"""User, item, time, feedback, as written."""

_ids = st.sampled_from(["a", "b", "c", "7", "é", "x y", "'; --", "007"])
_items = st.sampled_from([f"i{k}" for k in range(6)])
_times = st.integers(-50, 50).map(str)
_good = st.tuples(_ids, _items, _times, st.sampled_from(["click", "buy"]))
FAULTS: dict[str, tuple[str, st.SearchStrategy[Row]]] = {
    "no user": ("blank_user", st.tuples(st.sampled_from(["", "  "]), _items, _times, st.just("buy"))),
    "no item": ("blank_item", st.tuples(_ids, st.sampled_from(["", "\t"]), _times, st.just("?"))),
    "long id": ("malformed_id", st.tuples(st.just("u" * 1001), _items, _times, st.just("buy"))),
    "time": (
        "bad_time",
        st.tuples(_ids, _items, st.sampled_from(["", "soon", "1.5", "1e5", "0x1", "9" * 30, "1_0"]), st.just("buy")),
    ),
    "feedback": ("bad_feedback", st.tuples(_ids, _items, _times, st.sampled_from(["", "share", "BUY", "1"]))),
    "unwanted": ("dropped_feedback", st.tuples(_ids, _items, _times, st.just("view"))),
    "NUL": ("malformed_row", st.tuples(st.just("\0"), _items, _times, st.just("buy"))),
    "bytes": ("malformed_row", st.tuples(st.just("\udcff"), _items, _times, st.just("buy"))),
    "broken": ("malformed_row", st.tuples(_ids, _items, _times, st.just("buy"))),
}


@st.composite
def _logs(draw: st.DrawFn) -> list[tuple[str, Row]]:
    """Rows, each with the name of its fault, or "" for none, or "blank" for an empty line."""
    names = draw(st.lists(st.sampled_from(["", "", "", "", "blank", *FAULTS]), min_size=1, max_size=30))
    rows = [(name, draw(FAULTS[name][1] if name in FAULTS else _good)) for name in names]
    return [("", draw(_good)), *rows]


def _as_csv(log: list[tuple[str, Row]], end: str) -> bytes:
    rows = ["" if name == "blank" else ",".join(row[:2] if name == "broken" else row) for name, row in log]
    return "".join(line + end for line in ["user,item,ts,event", *rows]).encode("utf-8", "surrogateescape")


def _as_json(log: list[tuple[str, Row]], end: str) -> bytes:
    lines = []
    for name, row in log:
        line = json.dumps(dict(zip(("user", "item", "ts", "event"), row, strict=True)), ensure_ascii=False)
        lines.append("" if name == "blank" else line[:-1] if name == "broken" else line.replace("\\u0000", "\0"))
    return "".join(line + end for line in lines).encode("utf-8", "surrogateescape")


def _expected(log: list[tuple[str, Row]]) -> tuple[dict[str, list[Row]], Counter[str]]:
    """The surviving events of each user in order, and the rows dropped by reason, the slow and plain way."""
    dropped = Counter(FAULTS[name][0] for name, _ in log if name in FAULTS)
    users: dict[str, list[Row]] = {}
    for name, row in log:
        if not name:
            users.setdefault(row[0], []).append(row)
    for user in list(users):
        users[user].sort(key=lambda row: int(row[2]))
        if len(users[user]) < 2:
            dropped["short_sequence"] += len(users.pop(user))
    train = {user: max(1, len(rows) * 4 // 5) for user, rows in users.items()}
    seen = {row[1] for user, rows in users.items() for row in rows[: train[user]]}
    for user, rows in users.items():
        kept = [row for row in rows if row[1] in seen]
        dropped["unseen_in_train"] += len(rows) - len(kept)
        users[user] = kept
    return users, +dropped


@FUZZ
@given(log=_logs(), end=st.sampled_from(["\n", "\r\n", "\r"]), shape=st.sampled_from(["csv", "jsonl", "csv.gz"]))
def test_kept_and_dropped_rows_equal_a_plain_reference(log: list[tuple[str, Row]], end: str, shape: str) -> None:
    users, dropped = _expected(log)
    content = _as_json(log, end) if shape == "jsonl" else _as_csv(log, end)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"log.{shape}"
        path.write_bytes(gzipped(content) if shape.endswith("gz") else content)

        def prepared() -> ecoc.Dataset:
            return ecoc.prepare(
                path, Path(folder) / "out", threads=1, user="user", item="item", time="ts", time_format="epoch-s",
                feedback="event", reward=REWARDS, bad_rows="skip", split="per-user:0.8",
            )  # fmt: skip

        if not users:
            with pytest.raises(ecoc.InputError, match=r"no usable rows|left nothing"):
                prepared()
            return
        data = prepared()
        found = {
            row.user: list(zip(row.items, row.times.tolist(), row.feedback, row.rewards.tolist(), strict=True))
            for row in data
        }
        facts = summary(data)
    assert found == {
        user: [(item, int(time), name, REWARDS[name]) for _, item, time, name in rows] for user, rows in users.items()
    }
    check_rows(facts)
    assert facts["dropped"] == dict(dropped)
    assert facts["rows_in"] == sum(name != "blank" for name, _ in log)


SEEDS = {
    "log.csv": joined(csv_lines()),
    "log.tsv": joined(csv_lines("\t")),
    "log.jsonl": joined(json_lines()),
    "log.csv.gz": gzipped(joined(csv_lines())),
    "log.csv.zst": zstd(joined(csv_lines())),
    "log.parquet": parquet_bytes(),
}
_SPLINTERS = st.sampled_from(
    [b'"', b"\n", b"\r", b"\0", b",", b"\t", b"\xff", b"\xef\xbb\xbf", b"{", b"}", b"[", b"]", b"\\", b"1e400", b"NaN",
     b"-", b"9" * 25, b"'", b"\x1f\x8b", b"PAR1", b"\xed\xa0\x80", b"null", b"\n\n", b'""', b'"\n'],
)  # fmt: skip


@st.composite
def _mutated(draw: st.DrawFn) -> tuple[str, bytes]:
    """A right file with pieces cut out, put in, overwritten or repeated; or bytes that never were a file."""
    name = draw(st.sampled_from(sorted(SEEDS)))
    if draw(st.integers(0, 4)) == 0:
        return name, draw(st.binary(max_size=300))
    content = SEEDS[name]
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(content)))
        stop = min(len(content), start + draw(st.integers(0, 30)))
        piece = draw(st.one_of(st.just(b""), _SPLINTERS, st.binary(max_size=6), st.just(content[start:stop] * 2)))
        content = content[:start] + piece + content[stop:]
    return name, content


@FUZZ
@given(
    file=_mutated(),
    bad_rows=st.sampled_from(["fail", "skip"]),
    worth=st.sampled_from([{"feedback": "event", "reward": REWARDS}, {"reward_column": "price*2"}, {}]),
    encoding=st.sampled_from(["utf-8", "utf-8", "utf-8", "latin-1", "utf-16", "gb18030"]),
)
def test_whatever_the_bytes_the_answer_is_a_dataset_or_an_input_error(
    file: tuple[str, bytes], bad_rows: str, worth: dict[str, object], encoding: str
) -> None:
    name, content = file
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        out = Path(folder) / "work" / "out"
        options: dict[str, Any] = {"user": "user", "item": "item", "time": "ts", "min_length": 1, **worth}
        try:
            data = ecoc.prepare(path, out, threads=1, bad_rows=bad_rows, encoding=encoding, **options)
        except ecoc.InputError as error:
            assert "\n" not in str(error)
            left = sorted(out.parent.iterdir()) if out.parent.exists() else []
            assert not left
        else:
            check_rows(summary(data))
