"""Sources: one raw format each, one file and one line in this table."""

from ecoc.data.bad_rows import BadRows
from ecoc.data.delimited import Delimited
from ecoc.data.readers import JsonLines, ParquetRows, Reader
from ecoc.data.sources.base import Feedback, Fields, PrepareConfig, Source, find_file
from ecoc.data.sources.log import Log
from ecoc.data.sources.movielens import MovieLens
from ecoc.data.sources.retailrocket import RetailRocket
from ecoc.data.sources.rl4rs import RL4RS
from ecoc.data.sources.taobao import Taobao
from ecoc.data.sources.tmall import Tmall
from ecoc.data.sources.world import World
from ecoc.data.sources.yelp import Yelp
from ecoc.data.times import Epoch, Iso, Pattern, RowOrder
from ecoc.registry import Registry

__all__ = [
    "SOURCES",
    "BadRows",
    "Delimited",
    "Epoch",
    "Feedback",
    "Fields",
    "Iso",
    "JsonLines",
    "ParquetRows",
    "Pattern",
    "PrepareConfig",
    "Reader",
    "RowOrder",
    "Source",
    "find_file",
]

SOURCES: Registry[Source] = Registry(
    "source",
    {
        "log": Log,
        "yelp": Yelp,
        "tmall": Tmall,
        "rl4rs": RL4RS,
        "movielens": MovieLens,
        "retailrocket": RetailRocket,
        "taobao": Taobao,
        "world": World,
    },
)
