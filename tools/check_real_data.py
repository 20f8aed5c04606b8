"""Compare `ecoc prepare` on real files with an independent pandas computation, number by number.

    python tools/check_real_data.py FOLDER

FOLDER holds ml-1m/, taobao-userbehavior/, ta-feng/, complete-journey/, amazon-beauty-54k/, rl4rs-items/. A set that is
not there is named as not checked. Exit code 1 if any number differs.
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
    leave_one_out: bool = False


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
        leave_one_out=True,
    ),
]


def expected(rows: pd.DataFrame, leave_one_out: bool) -> dict[str, Any]:
    """The counts by pandas alone: sequences of two or more, cut, vocabulary, targets."""
    rows_in = len(rows)
    rows = rows[rows.groupby("user").item.transform("size") >= 2]
    rows = rows.sort_values(["user", "time"], kind="stable")
    if leave_one_out:
        cut = None
        is_train = rows.user.duplicated(keep="last")
    else:
        cut = int(rows.time.sort_values().iloc[int(len(rows) * 8 // 10)])
        is_train = rows.time < cut
    vocabulary = set(rows.item[is_train])
    kept = rows[rows.item.isin(vocabulary)]
    test = kept[~is_train[kept.index]]
    first = ~kept.user.duplicated()
    return {
        "rows_in": rows_in,
        "interactions": len(kept),
        "users": kept.user.nunique(),
        "items": len(vocabulary),
        "cut": cut,
        "test": len(test),
        "test_targets": int((~first[test.index]).sum()),
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
        "rows_in": answer["rows_in"] - answer["dropped"].get("duplicate", 0),
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
        ours, truth = prepared(case, path), expected(case.read(path), case.leave_one_out)
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
