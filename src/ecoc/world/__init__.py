"""The built-in marketplace with a known truth, and its Gymnasium environment `ecoc/Market-v0` (`ecoc.world.gym`)."""

import warnings
from typing import Any

from ecoc.world.log import LogBlock, item_ids, item_table, log_batches, log_blocks, user_ids
from ecoc.world.market import FEEDBACK, REWARDS, Market, MarketConfig, MarketState
from ecoc.world.policies import POLICIES, Evaluation, MarketPolicy, Observation, evaluate, plan
from ecoc.world.worlds import WORLDS, parse_world

__all__ = [
    "ENV_ID",
    "FEEDBACK",
    "POLICIES",
    "REWARDS",
    "WORLDS",
    "Evaluation",
    "LogBlock",
    "Market",
    "MarketConfig",
    "MarketPolicy",
    "MarketState",
    "Observation",
    "evaluate",
    "item_ids",
    "item_table",
    "log_batches",
    "log_blocks",
    "parse_world",
    "plan",
    "user_ids",
]

ENV_ID = "ecoc/Market-v0"

try:
    import gymnasium
except ModuleNotFoundError as error:
    if error.name != "gymnasium":  # it is optional, but a broken installation must not pass for a missing one
        raise
else:
    gymnasium.register(
        ENV_ID,
        entry_point="ecoc.world.gym:MarketEnv",
        vector_entry_point="ecoc.world.gym:MarketVectorEnv",
    )

_RENAMED = {"Policy": "MarketPolicy", "State": "MarketState"}


def __getattr__(name: str) -> Any:
    if name not in _RENAMED:
        raise AttributeError(f"module 'ecoc.world' has no attribute '{name}'")
    warnings.warn(
        f"ecoc.world.{name} is now ecoc.world.{_RENAMED[name]}; the old name will be removed in the next release",
        DeprecationWarning,
        stacklevel=2,
    )
    return globals()[_RENAMED[name]]
