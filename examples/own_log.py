"""From an event log to recommendations: `python examples/own_log.py events.csv` (columns user, item, time, event).

Without a file, the script makes up a small log.
"""

import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import ecoc


def make_up_log(path: Path) -> Path:
    """Write a log of 300 users who go through the catalogue, mostly by a stride of their own, and sometimes buy."""
    draw = random.Random(0)
    rows = ["user,item,time,event"]
    for user in range(300):
        item, stride = draw.randrange(60), draw.choice([1, 2, 3])
        for step in range(draw.randint(5, 20)):
            rows.append(f"u{user},i{item},{1_700_000_000 + 600 * step + user},{draw.choice(['view', 'view', 'buy'])}")
            item = (item + draw.choice([stride, stride, stride, 7])) % 60
    path.write_text("\n".join(rows) + "\n")
    return path


def main(log: Path | None, folder: Path) -> None:
    """Prepare, train, evaluate, recommend."""
    columns: dict[str, Any] = {"user": "user", "item": "item", "time": "time", "feedback": "event"}
    log = log or make_up_log(folder / "events.csv")
    data = ecoc.prepare(log, folder / "data", **columns, reward={"view": 1, "buy": 3}, split="leave-one-out")
    run = ecoc.train(data, folder / "run", config={"train": {"max_epochs": 30}})
    print(ecoc.evaluate(run.model, data))
    print(run.model.recommend([["i3", "i4"], [("i20", "buy")]], k=5))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else None, Path(scratch))
