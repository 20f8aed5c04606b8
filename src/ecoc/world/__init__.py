"""The built-in marketplace with a known truth. The Gymnasium adapter is `ecoc.world.gym`."""

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
