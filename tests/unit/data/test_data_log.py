import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_case import prepare_file, prepare_text, write_log

from ecoc.data.sources.log import LogConfig
from ecoc.errors import InputError

LOO: dict[str, Any] = {"split": "leave-one-out", "min_length": 1}


def test_columns_without_a_header_are_numbered(tmp_path: Path) -> None:
    data = prepare_text(tmp_path, "7,a,x\n8,a,x\n", header=False, time="1", user="2", item="3", **LOO)
    assert data.manifest.rows_in == 2
    assert (data.user("a")[0].items, data.times.tolist()) == (["x", "x"], [7, 8])


@pytest.mark.parametrize("delimiter", [",", ";", "|", "\t", "\\t", "::", "@", " ", "<>"])
def test_any_separator_is_understood(delimiter: str, tmp_path: Path) -> None:
    written = "\t" if delimiter == "\\t" else delimiter
    text = "\n".join(written.join(row) for row in ("uit", ("a", "x", "1"), ("a", "x", "2")))
    assert prepare_text(tmp_path, text, delimiter=delimiter, **LOO).times.tolist() == [1, 2]


@pytest.mark.parametrize("separator", [",", ";", "|", "\t"])
def test_common_separators_are_found_in_the_first_line(separator: str, tmp_path: Path) -> None:
    text = "\n".join(separator.join(row) for row in ("uit", ("a", "x", "1"), ("a", "x", "2")))
    assert prepare_text(tmp_path, text, **LOO).times.tolist() == [1, 2]


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "cp1252", "utf-8-sig", "gb18030"])
@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
def test_other_encodings_are_read_when_named(encoding: str, name: str, tmp_path: Path) -> None:
    rows = [("Zoé", "ü", 1), ("Zoé", "ü", 2)]
    lines = [json.dumps(dict(zip("uit", row, strict=True)), ensure_ascii=False) for row in rows]
    if name == "log.csv":
        lines = ["u,i,t", *(",".join(map(str, row)) for row in rows)]
    data = prepare_text(tmp_path, "\r\n".join(lines).encode(encoding), name=name, encoding=encoding, **LOO)
    assert [(part.user, part.items) for part in data] == [("Zoé", ["ü", "ü"])]


def test_several_files_and_a_folder_are_read_in_the_order_given(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    write_log(folder / "b.csv", [("a", "3", 5), ("a", "1", 5)])
    write_log(folder / "a.tsv", [("a", "1", 5), ("a", "2", 5)])
    (folder / "a.tsv").write_text((folder / "a.tsv").read_text().replace(",", "\t"))
    for ignored in ("_SUCCESS", ".hidden.csv", "README.md"):
        (folder / ignored).write_text("not a log")
    expected = {"folder": ["1", "2", "3", "1"], "files": ["3", "1", "1", "2"]}
    for name, source in {"folder": folder, "files": [folder / "b.csv", folder / "a.tsv"]}.items():
        data = prepare_file(source, tmp_path / name, split="leave-one-out", time_format="epoch-s")  # type: ignore[arg-type]
        assert data.manifest.rows_in == 4
        assert data.user("a")[0].items == [item for item in expected[name] if item in data.vocab]


@pytest.mark.parametrize("name", ["LOG.JSONL", "LOG.CSV", "Log.Parquet"])
def test_capital_letters_in_an_ending_do_not_matter(name: str, tmp_path: Path) -> None:
    if name == "Log.Parquet":
        pq.write_table(pa.table({"u": ["a", "a"], "i": ["x", "x"], "t": [1, 2]}), tmp_path / name)
        assert prepare_file(tmp_path / name, tmp_path / "out", **LOO).times.tolist() == [1, 2]
        return
    text = '{"u":"a","i":"x","t":1}\n{"u":"a","i":"x","t":2}\n' if "JSON" in name else "u,i,t\na,x,1\na,x,2\n"
    assert prepare_text(tmp_path, text, name=name, **LOO).times.tolist() == [1, 2]


def test_a_folder_without_logs_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source, message in ((tmp_path / "empty", "the folder has no log files"), (tmp_path / "no", "no such file")):
        with pytest.raises(InputError, match=message):
            prepare_file(source, tmp_path / "out")


def test_an_items_file_gives_titles_prices_and_categories(tmp_path: Path) -> None:
    items = tmp_path / "items.csv"
    items.write_text('i,title,price,category\nx,"A, ""b""",1.5,c\nx,second,2,d\ny,,free,\nunused,t,1,c\n')
    log = write_log(tmp_path / "log.csv", [("a", "x", 1), ("a", "y", 2), ("a", "z", 3), ("a", "x", 4)])
    data = prepare_file(log, tmp_path / "out", items=str(items), **LOO)
    first = data.item("x")
    assert (first.title, first.price, first.category) == ('A, "b"', 1.5, "c")
    assert (data.item("y").price, data.item("y").category) == (None, None)
    assert (data.item("z").title, data.item("z").price, data.item("z").category) == (None, None, None)
    assert data.manifest.rows_in == 4
    named = {"items_id": "sku", "items_title": "name"}
    (tmp_path / "named.csv").write_text("sku,name\nx,Shoe\n")
    again = prepare_file(log, tmp_path / "again", items=str(tmp_path / "named.csv"), **named, **LOO)
    assert again.item("x").title == "Shoe"
    with pytest.raises(InputError, match="no column 'title', 'price' or 'category'"):
        prepare_file(log, tmp_path / "bad", items=str(tmp_path / "named.csv"), items_id="sku", **LOO)


FEEDBACK = "u,i,t,f,r\n"


def test_a_reward_map_names_what_counts_and_what_is_left_out(tmp_path: Path) -> None:
    log = FEEDBACK + "a,x,1,click,9\na,x,2,view,9\na,x,3,buy,9\na,x,4,click,9\n"
    data = prepare_text(tmp_path, log, feedback="f", reward="click=1,buy=3.5,view=drop", **LOO)
    assert data.user("a")[0].feedback == ["click", "buy", "click"]
    assert data.rewards.tolist() == [1.0, 3.5, 1.0]
    assert data.manifest.dropped == {"dropped_feedback": 1}
    assert data.manifest.feedback.names == ("click", "buy")


def test_feedback_outside_the_reward_map_is_a_bad_row(tmp_path: Path) -> None:
    log = FEEDBACK + "a,x,1,click,9\na,x,2,clik,9\na,x,3,click,9\na,x,4,,9\n"
    with pytest.raises(InputError, match=r"log.csv:3: feedback 'clik', expected one of click, buy"):
        prepare_text(tmp_path / "fail", log, feedback="f", reward="click=1,buy=3", **LOO)
    data = prepare_text(tmp_path, log, feedback="f", reward={"click": 1, "buy": 3}, bad_rows="skip", **LOO)
    assert data.manifest.dropped == {"bad_feedback": 2}


def test_numbers_as_feedback_are_their_own_reward_however_written(tmp_path: Path) -> None:
    log = FEEDBACK + "a,x,1,5,1\na,x,2,5.0,1\na,x,3, 5.00,1\na,x,4,-0.5,1\na,x,5,5e0,1\na,x,6,10,1\n"
    data = prepare_text(tmp_path, log, feedback="f", **LOO)
    assert data.manifest.feedback.names == ("-0.5", "5", "10")
    assert data.manifest.feedback.rewards == (-0.5, 5.0, 10.0)
    assert data.rewards.tolist() == [5.0, 5.0, 5.0, -0.5, 5.0, 10.0]


@pytest.mark.parametrize("value", ["good", "", "nan", "inf", "1e39", "1_0", "0x1"])
def test_what_is_no_number_is_no_numeric_feedback(value: str, tmp_path: Path) -> None:
    log = FEEDBACK + f"a,x,1,5,1\na,x,2,{value},1\na,x,3,4,1\n"
    with pytest.raises(InputError, match=r"log.csv:3: feedback .* expected a number"):
        prepare_text(tmp_path, log, feedback="f", **LOO)


def test_minus_zero_is_zero(tmp_path: Path) -> None:
    data = prepare_text(tmp_path, FEEDBACK + "a,x,1,0,1\na,x,2,-0,1\na,x,3,-0.0,1\n", feedback="f", **LOO)
    assert data.manifest.feedback.names == ("0",)


def test_the_sign_of_zero_does_not_make_the_rows_order_matter(tmp_path: Path) -> None:
    rows = ["a,x,1,f,0\n", "a,x,1,f,-0.0\n", "a,x,2,f,1\n"]
    options: dict[str, Any] = {"reward_column": "r", "ties": "item", **LOO}
    plain = prepare_text(tmp_path / "plain", FEEDBACK + "".join(rows), **options)
    turned = prepare_text(tmp_path / "turned", FEEDBACK + "".join(reversed(rows)), **options)
    assert plain.checksum == turned.checksum


def test_feedback_names_and_a_reward_column_go_together(tmp_path: Path) -> None:
    log = FEEDBACK + "a,x,1,click,0.5\na,x,2,buy,-7\na,x,3,click,2\n"
    data = prepare_text(tmp_path, log, feedback="f", reward_column="r*2", **LOO)
    assert data.user("a")[0].feedback == ["click", "buy", "click"]
    assert data.rewards.tolist() == [1.0, -14.0, 4.0]
    assert data.manifest.feedback.rewards is None


@pytest.mark.parametrize("bad_rows", ["fail", "skip"])
def test_blank_users_and_items_are_dropped_by_name_and_never_fail(bad_rows: str, tmp_path: Path) -> None:
    log = "u,i,t\na,x,1\n,x,2\n  ,x,2\na,,3\na,\t,3\n,,4\na,x,5\n"
    data = prepare_text(tmp_path, log, bad_rows=bad_rows, **LOO)
    assert data.manifest.dropped == {"blank_user": 3, "blank_item": 2}
    assert (data.manifest.rows_in, data.counts.interactions) == (7, 2)


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl"])
def test_a_faulty_line_is_counted_once(name: str, tmp_path: Path) -> None:
    lines = ["u,i,t", "a,x,1", "a,x,2", "a,x\0,3", "a,x,4"]
    if name == "log.jsonl":
        lines = ['{"u":"a","i":"x","t":%d}' % k for k in range(1, 4)]  # noqa: UP031
        lines.insert(2, '{"u":"a\0","i":"x","t":9}')
    data = prepare_text(tmp_path, "\n".join(lines) + "\n", name=name, bad_rows="skip", **LOO)
    assert data.manifest.dropped == {"malformed_row": 1}
    assert data.manifest.rows_in == 4


def test_no_row_is_lost_among_very_many_kinds_of_bad_feedback(tmp_path: Path) -> None:
    rows = [f"a,x,{k},bad{k},1\n" for k in range(10_300)]
    log = FEEDBACK + "".join(rows) + "a,x,20000,1,1\na,x,20001,2,1\n"
    data = prepare_text(tmp_path, log, feedback="f", bad_rows="skip", **LOO)
    assert data.manifest.dropped == {"bad_feedback": 10_300}
    assert (data.manifest.rows_in, data.counts.interactions) == (10_302, 2)


def test_a_missing_feedback_is_a_bad_row_and_cannot_be_given_a_reward(tmp_path: Path) -> None:
    table = pa.table({"u": ["a"] * 3, "i": ["x"] * 3, "t": [1, 2, 3], "f": ["b", None, "b"]})
    pq.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(InputError, match="a feedback without a name"):
        prepare_file(tmp_path / "log.parquet", tmp_path / "out", feedback="f", reward={"b": 1, "": 2}, **LOO)
    skip = {"feedback": "f", "reward": {"b": 1}, "bad_rows": "skip"}
    data = prepare_file(tmp_path / "log.parquet", tmp_path / "out", **skip, **LOO)
    assert data.manifest.dropped == {"bad_feedback": 1}
    assert data.manifest.rows_in == data.counts.interactions + 1 == 3


def test_a_row_with_two_faults_counts_under_the_first_reason(tmp_path: Path) -> None:
    log = FEEDBACK + "a,x,1,b,1\na,x,never,,zz\na,x,2,,zz\na,x,3,b,1\n"
    data = prepare_text(tmp_path, log, feedback="f", reward_column="r", bad_rows="skip", **LOO)
    assert data.manifest.dropped == {"bad_time": 1, "bad_reward": 1}


def test_amounts_as_feedback_are_sent_to_the_reward_column(tmp_path: Path) -> None:
    log = FEEDBACK + "".join(f"a,x,{k},{k}.5,1\n" for k in range(300))
    with pytest.raises(InputError, match=r"more than 255 different values.*--reward-column f"):
        prepare_text(tmp_path, log, feedback="f", **LOO)


@pytest.mark.parametrize("kind", ["dictionary", "large", "numbers"])
def test_parquet_ids_of_any_type_are_text(kind: str, tmp_path: Path) -> None:
    texts = pa.array(["7", "7", "7"])
    column = {
        "dictionary": texts.dictionary_encode(),
        "large": texts.cast(pa.large_string()),
        "numbers": pa.array([7.0, 7.0, 7.0]),
    }[kind]
    pq.write_table(pa.table({"u": column, "i": column, "t": [1, 2, 3]}), tmp_path / "log.parquet")
    data = prepare_file(tmp_path / "log.parquet", tmp_path / "out", **LOO)
    assert [(part.user, part.items) for part in data] == [("7", ["7"] * 3)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": None}, "name the time column"),
        ({"reward": "click=1"}, "needs the feedback column; name it with feedback"),
        ({"feedback": "t", "reward": "a=1", "reward_column": "t"}, "give reward or reward_column, not both"),
        ({"feedback": "t", "reward": "a"}, "is not name=number"),
        ({"feedback": "t", "reward": "a=many"}, "'many' is not a number"),
        ({"feedback": "t", "reward": "a=nan"}, "reward"),
        ({"delimiter": ""}, "at least one character"),
        ({"user": "usr"}, "no column 'usr'"),
        ({"item": "T"}, r"no column 'T'; did you mean 't'\?"),
        ({"usr": "u"}, r"unknown option 'usr'; did you mean 'user'\?"),
        ({"encoding": "klingon"}, "unknown encoding 'klingon'"),
        ({"session_gap": "soon"}, "is not a duration"),
        ({"dedup": "some"}, "dedup"),
        ({"min_length": 0}, "min_length"),
    ],
)
def test_a_wrong_option_says_what_is_wrong(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        prepare_text(tmp_path, "u,i,t\na,x,1\n", **options)
    assert not (tmp_path / "out").exists()


def test_the_config_is_what_the_command_line_says() -> None:
    config = LogConfig.build({"user": "u", "item": "i", "time": "t", "feedback": "f", "reward": "a=1, b = drop"})
    assert config.reward == {"a": 1.0, "b": "drop"}
