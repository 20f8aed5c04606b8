"""Registry: name -> class. The built-in classes are in one table; installed packages add to it through entry points.

The table names classes without importing them, so a help text can list them fast.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from ecoc.errors import InputError, did_you_mean

T = TypeVar("T")

BUILT_IN: dict[str, dict[str, str]] = {
    "encoder": {
        "gru4rec": "ecoc.encoders.gru4rec:GRU4Rec",
        "narm": "ecoc.encoders.narm:NARM",
        "stamp": "ecoc.encoders.stamp:STAMP",
        "caser": "ecoc.encoders.caser:Caser",
        "nextitnet": "ecoc.encoders.nextitnet:NextItNet",
        "srgnn": "ecoc.encoders.srgnn:SRGNN",
        "gcsan": "ecoc.encoders.gcsan:GCSAN",
        "dhcn": "ecoc.encoders.dhcn:DHCN",
        "sasrec": "ecoc.encoders.sasrec:SASRec",
        "ssept": "ecoc.encoders.ssept:SSEPT",
        "bert4rec": "ecoc.encoders.bert4rec:BERT4Rec",
        "hstu": "ecoc.encoders.hstu:HSTU",
    },
    "method": {
        "supervised": "ecoc.methods.supervised:Supervised",
        "ecoc": "ecoc.methods.ecoc.method:ECoC",
        "sqn": "ecoc.methods.sqn:SQN",
        "sa2c": "ecoc.methods.sa2c:SA2C",
        "sdac_sr": "ecoc.methods.sdac:SDACSR",
        "sdac_dc": "ecoc.methods.sdac:SDACDC",
        "prl": "ecoc.methods.prl:PRL",
        "neural_lcb": "ecoc.methods.neural_lcb:NeuralLCB",
        "popular": "ecoc.methods.untrained:Popular",
        "recent": "ecoc.methods.untrained:Recent",
        "markov": "ecoc.methods.untrained:Markov",
    },
    "source": {
        "log": "ecoc.data.sources.log:Log",
        "yelp": "ecoc.data.sources.yelp:Yelp",
        "tmall": "ecoc.data.sources.tmall:Tmall",
        "rl4rs": "ecoc.data.sources.rl4rs:RL4RS",
        "movielens": "ecoc.data.sources.movielens:MovieLens",
        "retailrocket": "ecoc.data.sources.retailrocket:RetailRocket",
        "taobao": "ecoc.data.sources.taobao:Taobao",
        "trivago": "ecoc.data.sources.trivago:Trivago",
        "world": "ecoc.data.sources.world:World",
    },
    "metric": {
        "hr": "ecoc.evaluation.metrics:HitRate",
        "mrr": "ecoc.evaluation.metrics:ReciprocalRank",
        "ndcg": "ecoc.evaluation.metrics:DiscountedGain",
    },
}
"""The built-in classes by kind and name, as `module:class`. A new class needs one line here."""


class Registry(Generic[T]):
    """All classes of one kind, by the name used in options, configs and reports.

    `table` holds classes, or texts `module:class` that are imported when they are first used. Installed packages add
    to it through the entry-point group `ecoc.<kind>s`; a built-in name cannot be replaced.
    """

    def __init__(self, kind: str, table: Mapping[str, type[T] | str] | None = None) -> None:
        self.kind = kind
        self._table: dict[str, type[T] | str] = dict(BUILT_IN[kind] if table is None else table)

    def __iter__(self) -> Iterator[str]:
        yield from self._table
        yield from (point.name for point in self._outside() if point.name not in self._table)

    def __getitem__(self, name: str) -> type[T]:
        entry = self._table.get(name)
        if isinstance(entry, str):
            loaded: type[T] = EntryPoint(name, entry, self._group).load()
            self._table[name] = loaded
            return loaded
        if entry is not None:
            return entry
        for point in self._outside():
            if point.name == name:
                outside: type[T] = point.load()
                return outside
        raise InputError(f"unknown {self.kind} '{name}'; {did_you_mean(name, self)}")

    def register(self, name: str, kind: type[T]) -> None:
        """Add a class for this process, as a script or a notebook does; a name that is taken is refused.

        A run that used it opens only where the class is registered again. A package uses an entry point instead.
        """
        if name in list(self):
            raise InputError(f"{self.kind} '{name}' exists already; choose another name")
        self._table[name] = kind

    @contextmanager
    def registered(self, name: str, kind: type[T]) -> Iterator[None]:
        """Have a class under a name for a while, as a test does."""
        self.register(name, kind)
        try:
            yield
        finally:
            del self._table[name]

    @property
    def _group(self) -> str:
        return f"ecoc.{self.kind}s"

    def _outside(self) -> list[EntryPoint]:
        return list(entry_points(group=self._group))
