"""Every other source: its own raw format, spoilt."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from bad_case import KEEP_ALL, Case, Skip, Writer
from good_logs import ROWS, START, file, files, gzipped, joined, replaced

Lines = Sequence[str]

YELP: Lines = [
    json.dumps({
        "review_id": k, "user_id": row["user"], "business_id": row["item"], "stars": 1.0 + k % 5,
        "text": "good, \"really\"", "date": f"2018-07-07 22:09:{k:02d}",
    })
    for k, row in enumerate(ROWS)
]  # fmt: skip
TMALL: Lines = [
    "user_id,item_id,cat_id,seller_id,brand_id,time_stamp,action_type",
    *(f"{row['user'][1:]},{row['item'][1:]},7,8,9,{511 + k},{k % 4}" for k, row in enumerate(ROWS)),
]
SLATE = ",".join(str(k) for k in range(1, 10))
RL4RS: Lines = [
    "timestamp@session_id@sequence_id@exposed_items@user_feedback@behavior_policy_id",
    *(f"{START + k}@{k}@1@{SLATE}@1,0,0,0,0,0,0,0,1@1" for k in range(10)),
]
PRICES = joined(["item_id item_vec price location", *(f"{k} 0.1,0.2 {k * 10}.5 {k % 3 + 1}" for k in range(1, 10))])
RATINGS: Lines = [f"{row['user'][1:]}::{row['item'][1:]}::{k % 5 + 1}::{START + k}" for k, row in enumerate(ROWS)]
TABBED: Lines = [line.replace("::", "\t") for line in RATINGS]
RATED: Lines = ["userId,movieId,rating,timestamp", *(line.replace("::", ",") for line in RATINGS)]
_EVENTS = ("view", "addtocart", "transaction")
ROCKET: Lines = [
    "timestamp,visitorid,event,itemid,transactionid",
    *(f"{START + k}000,{row['user'][1:]},{_EVENTS[k % 3]},{row['item'][1:]}," for k, row in enumerate(ROWS)),
]
_TYPES = ("pv", "cart", "fav", "buy")
TAOBAO: Lines = [f"{row['user'][1:]},{row['item'][1:]},77,{_TYPES[k % 4]},{START + k}" for k, row in enumerate(ROWS)]
TRIVAGO: Lines = [
    "user_id,session_id,timestamp,step,action_type,reference,platform,city,device,current_filters,impressions,prices",
    *(
        f"{row['user']},s{row['user']},{START + k},{k},search for item,{row['item'][1:]},FR,x,mobile,,,"
        for k, row in enumerate(ROWS)
    ),
]

FORMATS: Mapping[str, tuple[str, str, Lines]] = {
    "yelp": ("yelp", "yelp_academic_dataset_review.json", YELP),
    "tmall": ("tmall", "user_log_format1.csv", TMALL),
    "rl4rs": ("rl4rs", "rl4rs_dataset_a_sl.csv", RL4RS),
    "movielens": ("movielens", "ratings.dat", RATINGS),
    "movielens u.data": ("movielens", "u.data", TABBED),
    "movielens csv": ("movielens", "ratings.csv", RATED),
    "retailrocket": ("retailrocket", "events.csv", ROCKET),
    "taobao": ("taobao", "UserBehavior.csv", TAOBAO),
    "trivago": ("trivago", "train.csv", TRIVAGO),
}


def _write(shape: str, content: bytes, ending: str = "") -> Writer:
    beside = {"item_info.csv": PRICES} if shape == "rl4rs" else {}
    return files({FORMATS[shape][1] + ending: content, **beside}, FORMATS[shape][1] + ending)


def _empty_folder(folder: Path) -> Path:
    path = folder / "nothing here"
    path.mkdir()
    return path


def _options(shape: str) -> tuple[str, ...]:
    split = KEEP_ALL[:-2] if shape == "rl4rs" else KEEP_ALL  # its own split has every item in training
    return ("--format", FORMATS[shape][0], *split)


def _bad(shape: str, name: str, line: int, text: str, says: str, reason: str, rows: int = 1) -> Case:
    """One row of a source replaced by a faulty one; `rows` are the events it stands for."""
    return Case(
        f"{shape}: {name}",
        _write(shape, replaced({line: text}, FORMATS[shape][2])),
        _options(shape),
        where=f"{FORMATS[shape][1]}:{line}",
        says=says,
        skip=Skip({reason: rows}, [line] if rows == 1 else [line] * rows),
    )


def _of_every_source(shape: str) -> list[Case]:
    _, name, lines = FORMATS[shape]
    rows = 90 if shape == "rl4rs" else 20
    options = _options(shape)
    return [
        Case(f"{shape}: right", _write(shape, joined(lines)), options, rows_in=rows),
        Case(f"{shape}: right, in gzip", _write(shape, gzipped(joined(lines)), ".gz"), options, rows_in=rows),
        Case(f"{shape}: CRLF, no last newline", _write(shape, joined(lines, "\r\n")[:-2]), options, rows_in=rows),
        Case(f"{shape}: empty", _write(shape, b""), options, where=f"{name}:1", says="empty", process=shape == "yelp"),
        Case(f"{shape}: zeros", _write(shape, bytes(5000)), options, where=f"{name}:1", says="NUL"),
        Case(f"{shape}: zip", _write(shape, b"PK\x03\x04abc"), options, where=f"{name}:1", says="zip archive"),
        Case(f"{shape}: gzip cut off", _write(shape, gzipped(joined(lines))[:-20], ".gz"), options,
             where=f"{name}.gz:1", says="damaged or cut off"),
        Case(f"{shape}: an empty folder", _empty_folder, options, where="nothing here", says="the folder has no"),
        Case(f"{shape}: missing", lambda folder: folder / "nothing", options, where="nothing", says="no such file"),
        _bad(shape, "NUL in a row", 7, lines[6] + "\0", "NUL", "malformed_row"),
        _bad(shape, "not UTF-8", 7, lines[6] + "\udcff", "not UTF-8", "malformed_row"),
    ]  # fmt: skip


def _slate(line: int, **changes: str) -> str:
    names = RL4RS[0].split("@")
    return "@".join({**dict(zip(names, RL4RS[line - 1].split("@"), strict=True)), **changes}.values())


def _review(line: int, **changes: object) -> str:
    return json.dumps({**json.loads(YELP[line - 1]), **changes})


OWN_FAULTS = [
    _bad("yelp", "six stars", 5, _review(5, stars=6.0), "stars from 1 to 5", "bad_feedback"),
    _bad("yelp", "no stars", 5, _review(5, stars=None), "stars from 1 to 5", "bad_feedback"),
    _bad("yelp", "impossible date", 5, _review(5, date="2018-02-30 00:00:00"), "time '2018-02-30", "bad_time"),
    _bad("yelp", "cut off review", 20, YELP[19][:30], "row", "malformed_row"),
    _bad("tmall", "day 1301", 5, "1,2,7,8,9,1301,0", "time '1301'.*mmdd", "bad_time"),
    _bad("tmall", "day 0230", 5, "1,2,7,8,9,0230,0", "time '0230'", "bad_time"),
    _bad("tmall", "action 9", 5, "1,2,7,8,9,511,9", "action_type 0", "bad_feedback"),
    _bad("tmall", "short row", 5, "1,2,7", "found 3 fields, expected 7", "malformed_row"),
    _bad("rl4rs", "slate of eight", 5, _slate(5, exposed_items=SLATE[:-2]), "slate of nine", "malformed_row"),
    _bad("rl4rs", "session a name", 5, _slate(5, session_id="x"), "numeric session", "malformed_row"),
    _bad("rl4rs", "short row", 5, "1@2@3", "found 3 fields, expected 6", "malformed_row"),
    _bad("rl4rs", "time soon", 5, _slate(5, timestamp="soon"), "time 'soon'", "bad_time", 9),
    _bad("rl4rs", "answer 7", 5, _slate(5, user_feedback="7,0,0,0,0,0,0,0,1"), "'7.*expected feedback 0 or 1",
         "bad_feedback"),
    _bad("rl4rs", "item without price", 5, _slate(5, exposed_items="99" + SLATE[1:]), "reward", "bad_reward"),
    _bad("movielens", "rating good", 5, "1::2::good::1500000000", "'good', expected a rating", "bad_feedback"),
    _bad("movielens", "time soon", 5, "1::2::3::soon", "time 'soon'", "bad_time"),
    _bad("movielens", "short row", 5, "1::2", "found 2 fields, expected 4", "malformed_row"),
    _bad("movielens u.data", "long row", 5, "1\t2\t3\t4\t5", "found 5 fields, expected 4", "malformed_row"),
    _bad("movielens csv", "rating 1e400", 5, "1,2,1e400,1500000000", "rating", "bad_feedback"),
    _bad("retailrocket", "event share", 5, "1500000000000,1,share,2,", "'share', expected event view", "bad_feedback"),
    _bad("retailrocket", "short row", 5, "1500000000000,1", "found 2 fields", "malformed_row"),
    _bad("taobao", "behaviour share", 5, "1,2,77,share,1500000000", "'share', expected behaviour", "bad_feedback"),
    _bad("taobao", "time fractional", 5, "1,2,77,pv,1500000000.5", "time '1500000000.5'", "bad_time"),
    _bad("trivago", "action dance", 5, "u1,s1,1500000000,4,dance,2,FR,x,mobile,,,", "'dance', expected action_type",
         "bad_feedback"),
    _bad("trivago", "time soon", 5, "u1,s1,soon,4,search for item,2,FR,x,mobile,,,", "time 'soon'", "bad_time"),
    _bad("trivago", "a price missing", 5, "u1,s1,1500000000,4,clickout item,2,FR,x,mobile,,2|3,50",
         "not as many prices as impressions", "malformed_row"),
    _bad("trivago", "a very long list", 5,
         f"u1,s1,1500000000,4,clickout item,2,FR,x,mobile,,{'2|' * 1000}2,{'5|' * 1000}5", "more than 1000",
         "malformed_row"),
    _bad("trivago", "short row", 5, "u1,s1", "found 2 fields, expected 12", "malformed_row"),
    Case("trivago: no prices column", _write("trivago", replaced({1: TRIVAGO[0].replace("prices", "price")}, TRIVAGO)),
         _options("trivago"), where="train.csv:1", says="no column 'prices'; did you mean 'price'"),
    Case("taobao: blank user", _write("taobao", replaced({5: ",2,77,pv,1500000000"}, TAOBAO)), _options("taobao"),
         dropped={"blank_user": 1}, rows_in=20),
    Case("taobao: header", _write("taobao", joined(["user,item,category,type,time", *TAOBAO])), _options("taobao"),
         where="UserBehavior.csv:1", says="time", skip=Skip({"bad_time": 1}, [1])),
    Case("taobao: four columns", _write("taobao", b"1,2,3,4\n"), _options("taobao"), where="UserBehavior.csv:1",
         says="found 4 fields, expected the 5", process=True),
    Case("tmall: column missing", _write("tmall", replaced({1: TMALL[0].replace("item_id", "item")}, TMALL)),
         _options("tmall"), where="user_log_format1.csv:1", says="no column 'item_id'"),
    Case("yelp: column missing", _write("yelp", b'{"user": 1}\n'), _options("yelp"),
         where="yelp_academic_dataset_review.json:1", says="no column 'user_id'; did you mean 'user'"),
    Case("retailrocket: header only", _write("retailrocket", joined(ROCKET[:1])), _options("retailrocket"),
         where="events.csv:1", says="no rows"),
    Case("movielens: another name", file("ratings.xyz", joined(RATINGS)), _options("movielens"), where="ratings.xyz",
         says="not a MovieLens file"),
    Case("movielens: quote in an id", _write("movielens", replaced({5: '"1::2::3::1500000000'}, RATINGS)),
         _options("movielens"), where="ratings.dat:5", says="quote"),
    Case("rl4rs: no prices", file("rl4rs_dataset_a_sl.csv", joined(RL4RS)), _options("rl4rs"), where=".",
         says="no item_info.csv beside"),
    Case("rl4rs: prices header only",
         files({"rl4rs_dataset_a_sl.csv": joined(RL4RS), "item_info.csv": PRICES.splitlines()[0]},
               "rl4rs_dataset_a_sl.csv"),
         _options("rl4rs"), where="item_info.csv:1", says="no rows"),
    Case("rl4rs: short row in the prices",
         files({"rl4rs_dataset_a_sl.csv": joined(RL4RS), "item_info.csv": PRICES + b"10 0.1\n"},
               "rl4rs_dataset_a_sl.csv"),
         _options("rl4rs"), where="item_info.csv:11", says="found 2 fields, expected 4",
         skip=Skip({}, [11])),
    Case("movielens: titles with a short row",
         files({"ratings.csv": joined(RATED), "movies.csv": b"movieId,title,genres\n1,One,Drama\n2,Two\n"},
               "ratings.csv"),
         _options("movielens"), where="movies.csv:3", says="found 2 fields, expected 3", skip=Skip({}, [3])),
]  # fmt: skip

OTHER_SHAPES = [
    Case(f"{shape}: right", _write(shape, joined(FORMATS[shape][2])), _options(shape), rows_in=20)
    for shape in ("movielens u.data", "movielens csv")
]
_ONE_EACH = ("yelp", "tmall", "rl4rs", "movielens", "retailrocket", "taobao", "trivago")
SOURCES = [*(case for shape in _ONE_EACH for case in _of_every_source(shape)), *OTHER_SHAPES, *OWN_FAULTS]
