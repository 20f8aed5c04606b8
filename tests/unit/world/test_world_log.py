import hashlib
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from ecoc.world.log import item_table, log_batches, log_blocks
from ecoc.world.market import FEEDBACK, Market
from ecoc.world.policies import evaluate, logged
from ecoc.world.worlds import parse_world

_PRINT_DIGEST = """
import sys
sys.path.insert(0, {here!r})
from test_world_log import digest
print(digest({world!r}, {events}))
"""


def digest(world: str, events: int) -> str:
    """Fingerprint of a world's whole log."""
    result = hashlib.sha256()
    for block in log_blocks(Market(parse_world(world, events=events))):
        for part in (block.items, block.feedback, block.time):
            result.update(part.tobytes())
    return result.hexdigest()


@pytest.mark.parametrize(("world", "events"), [("world:bait", 42_000), ("world:satiation", 6_000)])
def test_log_is_the_same_whatever_the_number_of_threads(world: str, events: int) -> None:
    expected = digest(world, events)
    assert digest(world, events) == expected
    script = _PRINT_DIGEST.format(here=os.path.dirname(__file__), world=world, events=events)  # noqa: PTH120
    for threads in ("1", "4"):
        env = {**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        env["PYTHONPATH"] = os.pathsep.join(sys.path)
        done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected, threads


def test_blocks_make_whole_sessions_of_all_users() -> None:
    market = Market(parse_world("world:bait", events=41_000))
    blocks = list(log_blocks(market))
    assert [block.first_user for block in blocks] == [0, 1024, 2048]
    assert sum(len(block.items) for block in blocks) == 2050
    for block in blocks:
        assert block.items.shape[1] == 20
        assert np.diff(block.time, axis=1).min() >= 30
        assert np.diff(block.time, axis=1).max() <= 90
    starts = np.concatenate([block.time[:, 0] for block in blocks])
    first = 1_704_067_200
    assert first <= starts.min() < first + 86_400 * 2
    assert first + 86_400 * 88 < starts.max() < first + 86_400 * 90


def test_batches_are_the_blocks_in_words() -> None:
    market = Market(parse_world("world:satiation:small", seed=3))
    table = pa.Table.from_batches(log_batches(market))
    block = next(iter(log_blocks(market)))
    fields = [("user", pa.string()), ("item", pa.string()), ("time", pa.int64()), ("feedback", pa.string())]
    assert table.schema == pa.schema(fields)
    assert table.num_rows == 20_000
    rows = table.slice(0, 40).to_pylist()
    assert [row["user"] for row in rows] == ["u0000000"] * 20 + ["u0000001"] * 20
    assert [int(row["item"][1:]) for row in rows] == block.items[:2].ravel().tolist()
    assert [FEEDBACK.index(row["feedback"]) for row in rows] == block.feedback[:2].ravel().tolist()
    assert [row["time"] for row in rows] == block.time[:2].ravel().tolist()
    assert table.column("user")[-1].as_py() == "u0000999"


def test_item_table_names_every_logged_item() -> None:
    market = Market(parse_world("world:bait:small"))
    items = item_table(market)
    assert items.column_names == ["item", "title", "price", "category"]
    assert items.num_rows == 200
    assert items.column("item")[42].as_py() == "i0042"
    logged_items = pa.Table.from_batches(log_batches(market)).column("item").unique().to_pylist()
    assert set(logged_items) <= set(items.column("item").to_pylist())


def test_logged_reward_is_the_loggers_true_reward() -> None:
    market = Market(parse_world("world:bait", events=60_000))
    rewards = np.concatenate([block.feedback for block in log_blocks(market)])
    assert rewards.mean() == pytest.approx(evaluate(market, logged(market), 2000, warm=0).reward, rel=0.05)


def test_another_seed_writes_another_log() -> None:
    first, second = (next(iter(log_blocks(Market(parse_world("world:small", seed=seed))))) for seed in (0, 1))
    assert not np.array_equal(first.items, second.items)
