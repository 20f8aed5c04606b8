"""The log of a world: sessions of the logging policy, as arrays or as Arrow tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ecoc.world.market import FEEDBACK, Ints, Market

if TYPE_CHECKING:
    import pyarrow as pa

_FIRST_SECOND = 1_704_067_200  # 2024-01-01 00:00 UTC
_SECONDS = 90 * 24 * 3600


@dataclass(frozen=True)
class LogBlock:
    """Whole sessions of consecutive users."""

    first_user: int
    items: Ints  # [n, steps]
    feedback: NDArray[np.int8]  # [n, steps]
    time: NDArray[np.int64]  # [n, steps] epoch seconds, strictly increasing


def log_blocks(market: Market) -> Iterator[LogBlock]:
    """Generate the log block by block. Each block has its own random stream and does not depend on the others."""
    config, work = market.config, market.workspace(market.chunk)
    for index, first in enumerate(range(0, config.sessions, market.chunk)):
        rng = np.random.default_rng([config.seed, 2, index])
        state = market.start(min(market.chunk, config.sessions - first), rng)
        shape = len(state), config.steps
        feedback = np.empty(shape, np.int8)
        for step in range(config.steps):
            state, feedback[:, step], _ = market.step(state, market.behave(state, rng, work), rng)
        begin = rng.integers(_FIRST_SECOND, _FIRST_SECOND + _SECONDS, size=(shape[0], 1))
        pauses = rng.integers(30, 91, size=shape)
        yield LogBlock(first, state.shown, feedback, begin + np.cumsum(pauses, axis=1) - pauses[:, :1])


def user_ids(market: Market, first: int, count: int) -> list[str]:
    """Ids of consecutive users, all of one width: u0000123."""
    width = max(7, len(str(market.config.sessions - 1)))
    return [f"u{user:0{width}d}" for user in range(first, first + count)]


def item_ids(market: Market) -> list[str]:
    """Ids of all items, all of one width: i0042."""
    width = max(4, len(str(market.config.items - 1)))
    return [f"i{item:0{width}d}" for item in range(market.config.items)]


def log_batches(market: Market) -> "Iterator[pa.RecordBatch]":
    """Generate the log as Arrow batches: user, item, time, feedback; one session per user, user by user."""
    import pyarrow as pa

    items, feedback = pa.array(item_ids(market)), pa.array(FEEDBACK)
    for block in log_blocks(market):
        n, steps = block.items.shape
        columns = {
            "user": pa.array(user_ids(market, block.first_user, n)).take(pa.array(np.repeat(np.arange(n), steps))),
            "item": items.take(pa.array(block.items.ravel())),
            "time": pa.array(block.time.ravel()),
            "feedback": feedback.take(pa.array(block.feedback.ravel())),
        }
        yield pa.RecordBatch.from_pydict(columns)


def item_table(market: Market) -> "pa.Table":
    """The catalogue as an Arrow table: item, title, price, category."""
    import pyarrow as pa

    columns = {
        "item": item_ids(market),
        "title": market.titles,
        "price": market.prices,
        "category": market.categories,
    }
    return pa.table(columns)
