"""Values that are wrong or odd: times, ids, feedback, rewards; and options that do not fit the file."""

import pyarrow as pa
from bad_case import COLUMNS, KEEP_ALL, LOG, PLAIN, PRICED, Case, Skip
from good_logs import ROWS, changed, column, csv_lines, fields, file, files, joined, parquet, replaced

GOOD = joined(csv_lines())
BY_NUMBER = (*COLUMNS, "--feedback", "event", *KEEP_ALL)
MORE = joined(csv_lines()[1:])  # so that every item stays in training
INJECTION = "'; DROP TABLE staged; --"


def _bad_time(name: str, value: str) -> Case:
    return Case(
        f"time {name}",
        file("log.csv", changed(9, ts=value)),
        where="log.csv:9",
        says="time .* expected a whole number",
        skip=Skip({"bad_time": 1}, [9]),
    )


def _bad_price(name: str, value: str) -> Case:
    return Case(
        f"reward {name}",
        file("log.csv", changed(9, price=value)),
        options=PRICED,
        where="log.csv:9",
        says="no finite reward from .*price",
        skip=Skip({"bad_reward": 1}, [9]),
    )


def _option(name: str, *options: str, says: str, where: str = "", base: tuple[str, ...] = LOG) -> Case:
    return Case(f"option {name}", file("log.csv", GOOD), (*base, *options), where=where, says=says)


TIMES = [
    _bad_time("1e400", "1e400"),
    _bad_time("NaN", "NaN"),
    _bad_time("inf", "inf"),
    _bad_time("hex", "0x59682F00"),
    _bad_time("with underscores", "1_500_000_480"),
    _bad_time("beyond int64", "99999999999999999999999"),
    _bad_time("blank", ""),
    _bad_time("with a fraction among whole ones", "1500000480.5"),
    _bad_time("other digits", "１５０００００４８０"),
    Case("time -0", file("log.csv", changed(9, ts="-0")), rows_in=20),
    Case("times negative", file("log.csv", column("ts", {9: -5}, -1000)), rows_in=20),
    Case("times at both ends of int64", file("log.csv", column("ts", {9: 2**63 - 1}, -(2**63))), rows_in=20),
    Case("times fractional", file("log.csv", column("ts", {9: "1500000480.25"}, "1500000000.5")), rows_in=20),
    Case(
        "time impossible date",
        file("log.csv", column("ts", {9: "2017-02-30"}, "2017-02-28")),
        where="log.csv:9",
        says="2017-02-30.*ISO date",
        skip=Skip({"bad_time": 1}, [9]),
        process=True,
    ),
    Case(
        "time impossible date in the first row",
        file("log.csv", column("ts", {2: "2017-02-30"}, "2017-02-28")),
        where="log.csv:2",
        says="2017-02-30",
        skip=Skip({"bad_time": 1}, [2]),
    ),
    Case(
        "time 13/45/2001 by pattern",
        file("log.csv", column("ts", {9: "13/45/2001"}, "13/05/2001")),
        options=(*LOG, "--time-format", "%d/%m/%Y"),
        where="log.csv:9",
        says="13/45/2001.*%d/%m/%Y",
        skip=Skip({"bad_time": 1}, [9]),
    ),
    Case(
        "times 13/45/2001 without a pattern",
        file("log.csv", column("ts", {}, "13/45/2001")),
        where="log.csv:2",
        says="13/45/2001.*--time-format",
        process=True,
    ),
    Case(
        "times nobody reads, blank in the first rows",
        file("log.csv", column("ts", {2: "", 3: ""}, "soon")),
        where="log.csv:4",
        says="soon.*--time-format",
    ),
    Case(
        "time bad in the first row only",
        file("log.csv", changed(2, ts="soon")),
        where="log.csv:2",
        says="soon",
        skip=Skip({"bad_time": 1}, [2]),
    ),
    Case("times all blank", file("log.csv", column("ts", {}, "")), where="log.csv:2", says="time ''"),
    Case("times without use", file("log.csv", column("ts", {}, "?")), (*LOG, "--time-format", "order"), rows_in=20),
]

MANY = [
    Case(
        "fifteen bad times",
        file("log.csv", replaced({line: fields(line, ts="soon") for line in range(3, 18)}) + MORE),
        where="log.csv:3",
        says="time 'soon'",
        skip=Skip({"bad_time": 15}, range(3, 13)),
    ),
    Case(
        "twelve bad rows of two kinds in turn",
        file(
            "log.csv",
            replaced({line: fields(line, ts="soon") if line % 2 else "u1,i1" for line in range(4, 16)}) + MORE,
        ),
        where="log.csv:4",
        says="found 2 fields",
        skip=Skip({"bad_time": 6, "malformed_row": 6}, range(4, 14)),
    ),
    Case(
        "a fault of every kind",
        file(
            "log.csv",
            replaced(
                {
                    3: fields(3, user=""),
                    4: fields(4, item=" "),
                    5: "u1",
                    6: fields(6, user="u" * 2000),
                    7: fields(7, ts="1e400"),
                    8: fields(8, event="?"),
                    9: fields(9, user=" ", ts="soon"),
                }
            ),
        ),
        where="log.csv:5",
        says="found 1 fields",
        skip=Skip(
            {"blank_user": 2, "blank_item": 1, "malformed_row": 1, "malformed_id": 1, "bad_time": 1, "bad_feedback": 1},
            [5, 6, 7, 8],
        ),
    ),
    Case(
        "a bad time in the second file",
        files({"a.csv": GOOD, "b.csv": changed(9, ts="soon")}),
        where="b.csv:9",
        says="time 'soon'",
        skip=Skip({"bad_time": 1}, [9]),
    ),
]

IDS = [
    Case("ids of white space", file("log.csv", changed(9, user="  \t ")), dropped={"blank_user": 1}, rows_in=20),
    Case(
        "items blank",
        file("log.csv", replaced({9: fields(9, item=""), 10: fields(10, item=" ")})),
        dropped={"blank_item": 2},
        rows_in=20,
        process=True,
    ),
    Case(
        "all users blank",
        file("log.csv", column("user", {}, "")),
        where="log.csv",
        says="no usable rows.*blank_user 20",
    ),
    Case(
        "ids like SQL",
        file("log.csv", changed(9, user=INJECTION, item=INJECTION + "x")),
        rows_in=20,
        process=True,
    ),
    Case("ids with controls", file("log.csv", changed(9, user="\x1b[2J\x07", item="i1")), rows_in=20),
    Case(
        "column names like SQL",
        file("log.csv", replaced({1: f'{INJECTION},"i""tem",t s,event,price'})),
        options=("--user", INJECTION, "--item", 'i"tem', "--time", "t s", *KEEP_ALL),
        rows_in=20,
    ),
    Case(
        "one column plays all parts",
        file("log.csv", column("user", {}, 7)),
        options=("--user", "user", "--item", "user", "--time", "user", *KEEP_ALL),
        rows_in=20,
    ),
]

FEEDBACK = [
    Case(
        "feedback not in the map",
        file("log.csv", changed(9, event="share")),
        where="log.csv:9",
        says="'share', expected one of click, buy",
        skip=Skip({"bad_feedback": 1}, [9]),
        process=True,
    ),
    Case(
        "feedback blank",
        file("log.csv", changed(9, event="")),
        where="log.csv:9",
        says="feedback ''",
        skip=Skip({"bad_feedback": 1}, [9]),
    ),
    Case(
        "feedback names without a map",
        file("log.csv", GOOD),
        options=BY_NUMBER,
        where="log.csv:2",
        says="'click', expected a number.*--reward",
    ),
    Case(
        "feedback like SQL",
        file("log.csv", changed(9, event=INJECTION)),
        where="log.csv:9",
        says="DROP TABLE",
        skip=Skip({"bad_feedback": 1}, [9]),
    ),
    *(
        Case(
            f"feedback {value} among numbers",
            file("log.csv", column("event", {9: value}, 1)),
            options=BY_NUMBER,
            where="log.csv:9",
            says="expected a number",
            skip=Skip({"bad_feedback": 1}, [9]),
        )
        for value in ("1e400", "nan", "-inf", "0x10", "1_000")
    ),
    Case(
        "feedback of 300 different numbers",
        file("log.csv", joined([csv_lines()[0], *(fields(2, event=k) for k in range(300))])),
        options=BY_NUMBER,
        where="log.csv",
        says="more than 255 different values.*--reward-column event",
    ),
    Case(
        "feedback of 11 000 unknown names",
        file("log.csv", joined([*csv_lines(), *(fields(2, event=f"name{k}") for k in range(11_000))])),
        where="log.csv:22",
        says="name0",
        skip=Skip({"bad_feedback": 11_000}, list(range(22, 32))),
    ),
    Case(
        "feedback left out on purpose",
        file("log.csv", GOOD),
        (*COLUMNS, "--feedback", "event", "--reward", "click=1,buy=drop", *KEEP_ALL[:-1], "per-user:0.99"),
        dropped={"dropped_feedback": 10},
        rows_in=20,
    ),
    _option("reward that is no map", "--reward", "click", says="not name=number"),
    _option("reward that is no number", "--reward", "click=one", says="not a number"),
    _option("reward nan", "--reward", "click=nan,buy=1", says="click"),
    _option("reward beyond float32", "--reward", "click=1e300,buy=1", says="click"),
]

REWARDS = [
    _bad_price("1e400", "1e400"),
    _bad_price("NaN", "nan"),
    _bad_price("inf", "-inf"),
    _bad_price("beyond float32", "1e39"),
    _bad_price("hex", "0x10"),
    _bad_price("with underscores", "1_000"),
    _bad_price("blank", ""),
    Case("reward -0", file("log.csv", changed(9, price="-0")), PRICED, rows_in=20),
    Case(
        "reward divided by zero",
        file("log.csv", changed(9, price="0")),
        options=(*PLAIN, "--reward-column", "1/price"),
        where="log.csv:9",
        says="no finite reward",
        skip=Skip({"bad_reward": 1}, [9]),
        process=True,
    ),
    _option(
        "reward divided by zero always", "--reward-column", "price/0", base=PLAIN, where="log.csv:2", says="reward"
    ),
    _option(
        "reward that overflows", "--reward-column", "price*1e308*1e308", base=PLAIN, where="log.csv:2", says="reward"
    ),
    _option(
        "reward inf - inf",
        "--reward-column",
        "price*1e308*1e308-price*1e308*1e308",
        base=PLAIN,
        where="log.csv:2",
        says="reward",
    ),
    _option("reward from 1e400", "--reward-column", "price*1e400", base=PLAIN, says="1e400|reward"),
    _option(
        "reward injection",
        "--reward-column",
        "1); DROP TABLE x; --",
        base=PLAIN,
        says=r"unexpected '[;)]'",
    ),
    _option("reward subquery", "--reward-column", "(select 1)", base=PLAIN, says="no column 'select'"),
    _option("reward of an unknown column", "--reward-column", "prise*2", base=PLAIN, says="'price'"),
    _option(
        "reward of deep parentheses",
        "--reward-column",
        "(" * 400 + "price" + ")" * 400,
        base=PLAIN,
        says="deeper|more than",
    ),
    _option("reward of many signs", "--reward-column=" + "-" * 900 + "price", base=PLAIN, says="deeper|more than"),
    _option("reward of no end", "--reward-column", "price+" * 400, base=PLAIN, says="longer than"),
    _option("reward empty", "--reward-column", "", base=PLAIN, says="reward"),
    Case("reward of 90 terms", file("log.csv", GOOD), (*PLAIN, "--reward-column", "price+" * 90 + "1"), rows_in=20),
]

OPTIONS = [
    _option("time format %Q", "--time-format", "%Q", says="%Q"),
    _option("time format %", "--time-format", "%", says="%"),
    _option("time format empty", "--time-format", "", says="--time-format"),
    _option("time format without %", "--time-format", "dd/mm", says="--time-format 'dd/mm'.*strptime"),
    _option("time format like SQL", "--time-format", "%Y'); DROP TABLE staged; --", where="log.csv:2", says="time"),
    _option("delimiter of two bytes", "--delimiter", "é", says="delimiter|no column"),
    Case(
        "delimited by a letter of two bytes",
        file("log.csv", GOOD.replace(b",", "§".encode())),
        (*LOG, "--delimiter", "§"),
        rows_in=20,
    ),
    Case(
        "option delimiter a line end, without header",
        file("log.csv", b"1\n2\n3\n"),
        ("--user", "1", "--item", "1", "--time", "1", "--no-header", "--delimiter", "\n"),
        where="",
        says="delimiter",
    ),
    _option("delimiter a quote", "--delimiter", '"', says="delimiter|no column"),
    _option("delimiter a line end", "--delimiter", "\n", says="delimiter|no column"),
    _option("bad-rows unknown", "--bad-rows", "ignore", says="fail.*skip"),
    _option("format unknown", "--format", "movielense", says="movielens"),
    _option("user column empty", "--user", "", where="log.csv:1", says="no column ''"),
    _option("items missing", "--items", "/no/such/items.csv", where="/no/such/items.csv", says="No such file"),
    _option("items a folder", "--items", "/tmp", where="/tmp", says="directory|not a regular file"),
    Case(
        "items header only",
        files({"log.csv": GOOD, "items.csv": b"item,title\n"}, "log.csv"),
        (*LOG, "--items", "items.csv"),
        where="",
        says="items.csv.*",
    ),
    Case(
        "session gap over all of int64",
        file("log.csv", column("ts", {2: 2**63 - 1, 6: -(2**63)}, 5)),
        (*LOG, "--session-gap", "1h"),
        rows_in=20,
    ),
    Case(
        "Parquet and CSV that disagree about time",
        lambda folder: (
            parquet("a.parquet", ts=pa.array([row["ts"] for row in ROWS], pa.timestamp("ns")))(
                file("b.csv", GOOD)(folder).parent
            ).parent
        ),
        where="b.csv:2",
        says="time",
    ),
]

VALUES = [*TIMES, *MANY, *IDS, *FEEDBACK, *REWARDS, *OPTIONS]
