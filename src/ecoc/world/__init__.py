"""The built-in marketplace with a known truth. The Gymnasium adapter is `ecoc.world.gym`.

With gymnasium installed, importing this registers the environment `ecoc/Market-v0`.
"""

from importlib.util import find_spec

from ecoc.world.log import LogBlock, item_ids, item_table, log_batches, log_blocks, user_ids
from ecoc.world.market import FEEDBACK, REWARDS, Market, MarketConfig, State
from ecoc.world.policies import POLICIES, Evaluation, Observation, Policy, evaluate, plan
from ecoc.world.worlds import WORLDS, parse_world

__all__ = [
    "FEEDBACK",
    "POLICIES",
    "REWARDS",
    "WORLDS",
    "Evaluation",
    "LogBlock",
    "Market",
    "MarketConfig",
    "Observation",
    "Policy",
    "State",
    "evaluate",
    "item_ids",
    "item_table",
    "log_batches",
    "log_blocks",
    "parse_world",
    "plan",
    "user_ids",
]

if find_spec("gymnasium"):  # an extra
    import gymnasium

    gymnasium.register(
        "ecoc/Market-v0",
        entry_point="ecoc.world.gym:MarketEnv",
        vector_entry_point="ecoc.world.gym:MarketVectorEnv",
    )
