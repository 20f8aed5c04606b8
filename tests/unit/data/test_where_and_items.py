"""`--where`, `--feedback EXPR`, and titles, prices and categories from the log itself."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_case import prepare_text

import ecoc
from ecoc.data.describe import page, summary
from ecoc.data.rewards import open_reward_scaler
from ecoc.data.schema import Reason
from ecoc.errors import InputError

SHOP = """u,i,t,name,price,quantity,kind
a,1,1,Cup,2.5,4,food
a,2,2,,x,1,
a,1,3,Cup,3.0,-4,food
b,1,4,CUP,2.5,1,home
b,POST,5,Postage,9,1,
b,2,6,Plate,1,2,home
a,2,7,Plate,-1,2,home
c,3,8,,,1,
c,1,9,Cup ,2.5,bad,food
"""
OPTIONS: dict[str, Any] = {"split": "leave-one-out", "min_length": 1}


def test_where_keeps_only_rows_for_which_it_is_true(tmp_path: Path) -> None:
    where = "quantity > 0 and i not in ('POST')"
    data = prepare_text(tmp_path, SHOP, where=where, **OPTIONS)
    assert data.manifest.rows_in == 9
    assert data.manifest.dropped[Reason.DROPPED_BY_WHERE] == 3  # a return, postage, and a quantity that is no number
    assert data.manifest.settings["where"] == where
    text = page(summary(data))
    assert f"where         {where}" in text
    assert "dropped_by_where 3" in text


def test_where_comes_before_the_checks_of_a_row(tmp_path: Path) -> None:
    log = "u,i,t,kind\na,1,1,x\na,2,no time,fee\na,1,3,x\n"
    with pytest.raises(InputError, match="no time"):
        prepare_text(tmp_path / "all", log, **OPTIONS)
    data = prepare_text(tmp_path, log, where="kind != 'fee'", **OPTIONS)
    assert data.manifest.dropped == {"dropped_by_where": 1}


def test_where_works_for_every_format_on_its_own_columns(tmp_path: Path) -> None:
    data = ecoc.prepare("world:small", tmp_path / "world", events=600, threads=1, where="feedback != 'ignore'")
    assert data.statistics()["feedback"]["ignore"] == 0
    assert data.manifest.dropped[Reason.DROPPED_BY_WHERE] > 100


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("quantty > 0", "no column 'quantty' in the log; did you mean 'quantity'"),
        ("'x'", "a condition is needed"),
        ("quantity >", "ends too early"),
        ("quantity > 'x' + 1", "no column 'x'"),
        ("quantity > 100", "no usable rows"),
    ],
)
def test_a_wrong_where_is_refused_and_writes_nothing(where: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        prepare_text(tmp_path, SHOP, where=where, **OPTIONS)
    assert not (tmp_path / "out").exists()


def test_unused_options_leave_no_trace_in_the_manifest(tmp_path: Path) -> None:
    settings = prepare_text(tmp_path, SHOP, **OPTIONS).manifest.settings
    assert not {"where", "title", "price", "baskets"} & set(settings)


VIDEO = "u,i,t,like,long,click\na,1,1,1,1,1\na,2,2,0,1,1\na,3,3,0,0,1\na,1,4,0,0,0\n"
LEVELS = "if(like, 'like', if(long, 'long', if(click, 'click', 'none')))"


def test_feedback_may_be_an_expression_of_names(tmp_path: Path) -> None:
    data = prepare_text(tmp_path, VIDEO, feedback=LEVELS, reward="like=3,long=2,click=1,none=0", **OPTIONS)
    assert data.sequence(0).feedback == ["like", "long", "click", "none"]
    assert data.rewards.tolist() == [3, 2, 1, 0]


def test_feedback_may_be_an_expression_of_numbers(tmp_path: Path) -> None:
    data = prepare_text(tmp_path, VIDEO, feedback="like + max(long, click)/2", **OPTIONS)
    assert data.rewards.tolist() == [1.5, 0.5, 0.5, 0]
    assert data.manifest.feedback.names == ("0", "0.5", "1.5")


def test_a_bad_feedback_of_an_expression_names_its_columns(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"log.csv:2: feedback from like='1', long='1', click='1', expected one of"):
        prepare_text(tmp_path, VIDEO, feedback=LEVELS, reward="long=2,click=1,none=0", **OPTIONS)


def test_rewards_take_the_functions(tmp_path: Path) -> None:
    data = prepare_text(tmp_path, VIDEO, reward_column="if(like, 5, log1p(min(t, 3)) + abs(0 - click))", **OPTIONS)
    assert data.rewards.tolist() == pytest.approx([5, 2.0986123, 2.3862944, 1.3862944])


def test_items_carry_their_most_frequent_title_price_and_category(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    columns = {"title": "name", "price": "price", "category": "kind"}
    with caplog.at_level(logging.WARNING, logger="ecoc.data"):
        data = prepare_text(tmp_path, SHOP, **columns, **OPTIONS)
    items = {item: data.item(item) for item in ("1", "2", "3")}
    assert [items["1"].title, items["1"].price, items["1"].category] == ["Cup", 2.5, "food"]
    assert [items["2"].title, items["2"].price, items["2"].category] == ["Plate", 1.0, "home"]
    assert [items["3"].title, items["3"].price, items["3"].category] == [None, None, None]
    warning = "1 of 4 items have several titles; the most frequent one of each is used"
    assert warning in caplog.text
    assert summary(data)["warnings"] == [warning]
    assert f"warning       {warning}" in page(summary(data))


def test_an_items_file_comes_before_the_log(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("i,title\n1,Mug\n")
    data = prepare_text(tmp_path, SHOP, items=str(tmp_path / "items.csv"), title="name", price="price", **OPTIONS)
    assert (data.item("1").title, data.item("1").price, data.item("2").title) == ("Mug", 2.5, "Plate")


def test_titles_of_dropped_rows_do_not_count(tmp_path: Path) -> None:
    data = prepare_text(tmp_path, SHOP, title="name", where="quantity > 0 and u != 'b'", **OPTIONS)
    assert summary(data)["warnings"] == []


def test_negative_rewards_are_counted(tmp_path: Path) -> None:
    log = SHOP.replace("bad", "1").replace("2,,x,1", "2,,1,1").replace(",,1,\nc,1", ",1,1,\nc,1")
    data = prepare_text(tmp_path, log, reward_column="quantity*price", **OPTIONS)
    assert summary(data)["statistics"]["reward"]["negative"] == 2
    assert "2 events have a negative reward" in page(summary(data))


def test_large_amounts_of_both_signs_are_clipped_and_counted(tmp_path: Path) -> None:
    amounts = [(k % 997) / 100 for k in range(3000)]
    amounts[5], amounts[6], amounts[7] = 1e6, -1e6, 2e5
    log = "u,i,t,r\n" + "".join(f"a,{k % 9},{k},{amount}\n" for k, amount in enumerate([*amounts, 1.0]))
    data = prepare_text(tmp_path, log, reward_column="r", split="leave-one-out")
    scaler = open_reward_scaler(data, "auto", shuffle=False, seed=0)
    scaled = scaler.of(data, np.arange(3000))
    assert (float(scaled[5]), float(scaled[6]), float(scaled[7])) == (1.0, -1.0, 1.0)
    assert scaler.clipped == (int((scaled == -1).sum()), 2)
    assert "clipped to [-1, 1]" in str(scaler)
    assert "2 at the top, 1 at the bottom" in str(scaler)
