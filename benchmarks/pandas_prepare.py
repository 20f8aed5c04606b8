"""The same preparation as a straightforward pandas script, for comparison: `python pandas_prepare.py LOG OUT`."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd


def main(log: Path, out: Path) -> None:
    """Read, check, filter, order, split, number and write sequences."""
    rows = pd.read_parquet(log) if log.suffix == ".parquet" else pd.read_csv(log)
    rows["ts"] = pd.to_numeric(rows.ts, errors="raise").astype("int64")
    rows = rows[rows.user_id.notna() & rows.item_id.notna() & (rows.user_id != "") & (rows.item_id != "")]
    rows["reward"] = rows.event.map({"click": 1.0, "favourite": 2.0, "buy": 3.0}).astype("float32")
    if rows.reward.isna().any():
        raise SystemExit("unknown feedback")
    while True:
        kept = rows[rows.groupby("user_id").item_id.transform("size") >= 2]
        if len(kept) == len(rows):
            break
        rows = kept
    rows = rows.sort_values(["user_id", "ts"], kind="stable")
    cut = int(np.sort(rows.ts.to_numpy())[int(len(rows) * 0.8)])
    rows["is_train"] = rows.ts < cut
    counts = rows[rows.is_train].item_id.value_counts()
    index = pd.Series(np.arange(1, len(counts) + 1, dtype=np.int32), index=counts.index)
    rows["item"] = rows.item_id.map(index)
    rows = rows[rows.item.notna()].astype({"item": "int32"})
    rows["event"] = rows.event.astype("category").cat.codes
    sequences = rows.groupby("user_id").agg(
        {"item": list, "reward": list, "event": list, "ts": list, "is_train": "sum"}
    )
    out.mkdir()
    sequences.to_parquet(out / "sequences.parquet")
    counts.rename("train_count").reset_index().to_parquet(out / "items.parquet")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
