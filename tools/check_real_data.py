"""Compare `ecoc prepare` on real files with an independent pandas computation, number by number.

    python tools/check_real_data.py FOLDER

FOLDER holds ml-1m/, taobao-userbehavior/, ta-feng/, complete-journey/, amazon-beauty-54k/, rl4rs-items/,
kuairand-pure-standard/, trivago-100k/, rl4rs-cup-slates/. A set that is not there is named as not checked. Exit code 1
if any number differs.
"""

import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

ECOC = str(Path(sys.executable).parent / "ecoc")


@dataclass(frozen=True)
class Case:
    """One real file: how ecoc is asked for it, and how pandas reads the same rows (user, item, time, reward)."""

    name: str
    path: str
    options: list[str]
    read: Callable[[Path], pd.DataFrame]
    split: str = "time"  # or leave-one-out, or source: by the column is_train
    has_baskets: bool = False
    min_length: int = 2


def read_ml_1m(path: Path) -> pd.DataFrame:
    """MovieLens `::` rows."""
    return pd.read_csv(path, sep="::", engine="python", names=["user", "item", "reward", "time"])


def read_taobao(path: Path) -> pd.DataFrame:
    """UserBehavior.csv; exact copies count once."""
    rows = pd.read_csv(path, names=["user", "item", "category", "behaviour", "time"]).drop_duplicates()
    rows["reward"] = rows.behaviour.map({"pv": 1, "cart": 2, "fav": 2, "buy": 3})
    return rows


def read_cart_fav_buy(path: Path) -> pd.DataFrame:
    """The filtered Taobao log with a header."""
    rows = pd.read_csv(path).rename(columns={"user_id": "user", "item_id": "item", "timestamp": "time"})
    rows["reward"] = rows.behavior.map({"cart": 2, "fav": 2, "buy": 3})
    return rows


def read_ta_feng(path: Path) -> pd.DataFrame:
    """Ta-Feng: month/day/year dates, ids with leading zeros."""
    rows = pd.read_csv(path, dtype={"CUSTOMER_ID": str, "PRODUCT_ID": str}, encoding="utf-8-sig")
    seconds = pd.to_datetime(rows.TRANSACTION_DT, format="%m/%d/%Y").astype("datetime64[s]").astype("int64")
    reward = rows.AMOUNT * rows.SALES_PRICE
    return pd.DataFrame({"user": rows.CUSTOMER_ID, "item": rows.PRODUCT_ID, "time": seconds, "reward": reward})


def read_complete_journey(path: Path) -> pd.DataFrame:
    """Complete Journey: ISO times, which ecoc keeps as microseconds."""
    rows = pd.read_csv(path)
    micros = pd.to_datetime(rows.transaction_timestamp).astype("datetime64[us]").astype("int64")
    return pd.DataFrame(
        {"user": rows.household_id, "item": rows.product_id, "time": micros, "reward": rows.sales_value}
    )


def read_kuairand(path: Path) -> pd.DataFrame:
    """KuaiRand: the highest of four levels of feedback; exact copies count once."""
    raw = pd.read_csv(path)
    reward = raw.is_click.clip(upper=1)
    reward = reward.mask(raw.long_view > 0, 2).mask(raw.is_like > 0, 3)
    rows = pd.DataFrame({"user": raw.user_id, "item": raw.video_id, "time": raw.time_ms, "reward": reward})
    return rows.drop_duplicates()


def read_trivago(path: Path) -> pd.DataFrame:
    """trivago: every hotel of a list, and every look at a hotel, in the order of steps and places."""
    raw = pd.read_csv(path, dtype=str, keep_default_na=False)
    raw["order"] = range(len(raw))
    places = ["change of sort order", "filter selection", "search for destination", "search for poi"]
    is_click = raw.action_type == "clickout item"
    looks = raw[~is_click & ~raw.action_type.isin(places)].assign(item=lambda rows: rows.reference, reward=1.0)
    slates = raw[is_click].assign(item=raw[is_click].impressions.str.split("|")).explode("item")
    slates["reward"] = 3.0 * (slates.item == slates.reference)
    is_listed = slates.groupby("order").reward.max() > 0
    unlisted = raw[is_click & ~raw.order.isin(is_listed.index[is_listed])]
    rows = pd.concat([looks, slates, unlisted.assign(item=unlisted.reference, reward=3.0)])
    rows = rows.sort_values("order", kind="stable").reset_index(drop=True)
    sequence = rows.user_id + " " + rows.session_id
    time = rows.timestamp.astype("int64")
    return pd.DataFrame(
        {"user": rows.user_id, "sequence": sequence, "item": rows.item, "time": time, "reward": rows.reward}
    )


def read_slates(path: Path) -> pd.DataFrame:
    """RL4RS slates of the cup: nine items a row; the reward is the price of what was bought."""
    raw = pd.read_csv(path, dtype={"exposed_items": str, "labels": str})
    prices = pd.read_csv(path.with_name("item_info_381.csv.gz")).set_index("item_id").price
    rows = raw.assign(item=raw.exposed_items.str.split(","), label=raw.labels.str.split(","), time=range(len(raw)))
    rows = rows.explode(["item", "label"]).reset_index(drop=True).astype({"item": int, "label": int})
    reward = rows.label * rows.item.map(prices)
    is_train = rows.row_id % 10 < 6
    return pd.DataFrame(
        {"user": rows.row_id, "item": rows.item, "time": rows.time, "reward": reward, "is_train": is_train}
    )


def read_beauty(path: Path) -> pd.DataFrame:
    """Blank-separated pairs in time order."""
    rows = pd.read_csv(path, sep=" ", names=["user", "item"])
    return rows.assign(time=range(len(rows)), reward=1)


CASES = [
    Case("ml-1m", "ml-1m/ratings.dat.gz", ["--format", "movielens"], read_ml_1m),
    Case("taobao raw", "taobao-userbehavior/UserBehavior_head.csv.gz", ["--format", "taobao"], read_taobao),
    Case(
        "taobao cart/fav/buy",
        "taobao-userbehavior/cart_fav_buy.csv.gz",
        shlex.split("--user user_id --item item_id --time timestamp --feedback behavior --reward cart=2,fav=2,buy=3"),
        read_cart_fav_buy,
    ),
    Case(
        "ta-feng",
        "ta-feng/ta_feng_all_months_merged.csv.gz",
        shlex.split(
            "--user CUSTOMER_ID --item PRODUCT_ID --time TRANSACTION_DT --time-format %m/%d/%Y"
            " --reward-column AMOUNT*SALES_PRICE"
        ),
        read_ta_feng,
    ),
    Case(
        "complete-journey",
        "complete-journey/transactions.csv.gz",
        shlex.split("--user household_id --item product_id --time transaction_timestamp --reward-column sales_value"),
        read_complete_journey,
    ),
    Case(
        "amazon-beauty-54k, leave-one-out",
        "amazon-beauty-54k/beauty.txt.gz",
        [
            *("--no-header", "--delimiter", " ", "--user", "1", "--item", "2"),
            *("--time-format", "order", "--split", "leave-one-out"),
        ],
        read_beauty,
        split="leave-one-out",
    ),
    Case(
        "ta-feng, baskets",
        "ta-feng/ta_feng_all_months_merged.csv.gz",
        shlex.split(
            "--user CUSTOMER_ID --item PRODUCT_ID --time TRANSACTION_DT --time-format %m/%d/%Y"
            " --reward-column AMOUNT*SALES_PRICE --baskets"
        ),
        read_ta_feng,
        has_baskets=True,
    ),
    Case(
        "kuairand",
        "kuairand-pure-standard/log_standard_4_25_to_5_08_pure.csv.gz",
        [
            *("--user", "user_id", "--item", "video_id", "--time", "time_ms", "--dedup", "exact"),
            *("--feedback", 'if(is_like, "like", if(long_view, "long", if(is_click, "click", "refused")))'),
            *("--reward", "refused=0,click=1,long=2,like=3"),
        ],
        read_kuairand,
    ),
    Case("trivago", "trivago-100k/sessions_100k.csv.gz", ["--format", "trivago"], read_trivago),
    Case(
        "rl4rs slates",
        "rl4rs-cup-slates/slates_10k.csv.gz",
        ["--format", "rl4rs"],
        read_slates,
        split="source",
        min_length=1,
    ),
]


def expected(case: Case, rows: pd.DataFrame) -> dict[str, Any]:
    """The counts by pandas alone: sequences that are long enough, cut, vocabulary, targets."""
    rows_in = len(rows)
    if "sequence" not in rows:
        rows = rows.assign(sequence=rows.user)
    rows = rows[rows.groupby("sequence").item.transform("size") >= case.min_length]
    rows = rows.sort_values(["sequence", "time"], kind="stable")
    cut = None
    if case.split == "leave-one-out":
        is_train = rows.sequence.duplicated(keep="last")
    elif case.split == "source":
        is_train = rows.is_train
    else:
        cut = int(rows.time.sort_values().iloc[int(len(rows) * 8 // 10)])
        is_train = rows.time < cut
    vocabulary = set(rows.item[is_train])
    kept = rows[rows.item.isin(vocabulary)]
    test = kept[~is_train[kept.index]]
    is_first = ~kept.sequence.duplicated()
    if case.has_baskets:
        is_first = kept.time == kept.groupby("sequence").time.transform("min")
    return {
        "rows_in": rows_in,
        "interactions": len(kept),
        "users": kept.user.nunique(),
        "items": len(vocabulary),
        "cut": cut,
        "test": len(test),
        "test_targets": int((~is_first[test.index]).sum()),
        "reward_sum": round(float(kept.reward.sum()), 1),
    }


def prepared(case: Case, path: Path) -> dict[str, Any]:
    """The same counts by the real command line."""
    with tempfile.TemporaryDirectory() as folder:
        command = [ECOC, "prepare", str(path), "--out", f"{folder}/data", "--json", "--quiet", *case.options]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        again = subprocess.run(
            [ECOC, "info", f"{folder}/data", "--json", "--verify"], check=True, capture_output=True, text=True
        )
        if json.loads(again.stdout) != answer:
            raise SystemExit(f"{case.name}: `info --json` differs from `prepare --json`")
    counts = answer["counts"]
    return {
        "rows_in": answer["rows_in"]
        - sum(answer["dropped"].get(name, 0) for name in ("duplicate", "dropped_by_source")),
        **{key: counts[key] for key in ("interactions", "users", "items")},
        "cut": answer["cut"],
        **{key: counts[key] for key in ("test", "test_targets")},
        "reward_sum": round(answer["statistics"]["reward"]["mean"] * counts["interactions"], 1),
    }


def check_prices(path: Path) -> bool:
    """The RL4RS price table, which has no trailing newline, through our own reader."""
    from ecoc.data.bad_rows import BadRows
    from ecoc.data.sources.rl4rs import RL4RS, RL4RSConfig

    table = RL4RS(RL4RSConfig(), [str(path)]).items(BadRows(skip=False)).to_pandas()
    truth = pd.read_csv(path, sep=" ")
    same = sorted(table.price) == sorted(truth.price) and len(table) == 283
    print(f"rl4rs-items: {len(table)} prices {'equal' if same else 'DIFFER'}")
    return same


def main(folder: Path) -> int:
    """Check whatever is in `folder`."""
    if not folder.is_dir():
        print(f"real data: not checked, no folder {folder} (set ECOC_SHARED_DATA)")
        return 0
    failures = 0
    for case in CASES:
        path = folder / case.path
        if not path.is_file():
            print(f"{case.name}: not checked, no {path}")
            continue
        ours, truth = prepared(case, path), expected(case, case.read(path))
        wrong = {key: (ours[key], truth[key]) for key in truth if not _same(ours[key], truth[key])}
        failures += bool(wrong)
        print(f"{case.name}: {'DIFFERS ' + str(wrong) if wrong else 'equal '}{ours}")
    prices = folder / "rl4rs-items" / "item_info.csv"
    if prices.is_file():
        failures += not check_prices(prices)
    return int(failures > 0)


def _same(ours: Any, truth: Any) -> bool:
    """Equal; sums of float32 rewards may differ in the last digits."""
    return bool(ours == truth or (isinstance(truth, float) and abs(ours - truth) <= 1e-6 * abs(truth)))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
