"""Base of sources: a source reads one raw format and states the role of each column."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Literal

import pyarrow as pa
from pydantic import Field, field_validator

from ecoc.config import Config
from ecoc.data.bad_rows import BadRows
from ecoc.data.expression import Expression
from ecoc.data.readers import Reader
from ecoc.data.schema import Statistics
from ecoc.data.text import check_encoding
from ecoc.data.times import TimeRule
from ecoc.errors import InputError

_DENSE = {".gz", ".zst", ".parquet", ".pq"}
_SPLIT = re.compile(r"(time|per-user):(0?\.\d+)|leave-one-out|source")
_GAP = re.compile(r"(\d+)\s*(s|sec|min|h|d)")
_GAP_SECONDS = {"s": 1, "sec": 1, "min": 60, "h": 3600, "d": 86400}


class PrepareConfig(Config):
    """Settings of every source; a source adds its own and may change a default."""

    min_item_support: int = Field(1, ge=1, description="items with fewer events are dropped")
    min_length: int = Field(2, ge=1, description="sequences with fewer events are dropped")
    filter: Literal["k-core", "single-pass"] = Field(
        "k-core",
        description="k-core: repeat both filters until nothing changes; single-pass: items, then sequences, once",
    )
    dedup: Literal["none", "exact", "feedback"] = Field(
        "none",
        description="repeated rows to drop: none, exact copies, or all but the first row per user, item and feedback",
    )
    session_gap: str | None = Field(
        None, description="split the log of a user at pauses longer than this, e.g. 30min, 8h, 7d"
    )
    baskets: bool = Field(
        False, description="events of a user at one time are a set: the events before it predict each of its items"
    )
    ties: Literal["file", "item"] = Field(
        "file", description="order of events with equal times: as in the log, or by item id"
    )
    split: str = Field(
        "time:0.8", description="time:0.8, per-user:0.8, leave-one-out, or source (the split of the source itself)"
    )
    validation: float = Field(0.1, ge=0, lt=1, description="share of the training sequences held out for validation")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="seed of the validation sample, and of a built-in world")
    bad_rows: Literal["fail", "skip"] = Field(
        "fail", description="fail: a bad row stops the command; skip: it is dropped, counted and listed"
    )
    encoding: str = Field("utf-8", description="text encoding of the files")
    where: str | None = Field(
        None, min_length=1, description="keep only rows for which this expression is true: quantity > 0 and price > 0"
    )

    @field_validator("split")
    @classmethod
    def _known_split(cls, value: str) -> str:
        if not _SPLIT.fullmatch(value):
            raise ValueError(f"'{value}' is not a split; expected time:0.8, per-user:0.8, leave-one-out or source")
        return value

    @field_validator("session_gap")
    @classmethod
    def _known_gap(cls, value: str | None) -> str | None:
        if value is not None and not _GAP.fullmatch(value):
            raise ValueError(f"'{value}' is not a duration; expected a number and s, min, h or d, e.g. 30min")
        return value

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        return check_encoding(value)

    @property
    def gap_seconds(self) -> int | None:
        """`session_gap` in seconds."""
        match = _GAP.fullmatch(self.session_gap or "")
        return int(match[1]) * _GAP_SECONDS[match[2]] if match else None


@dataclass(frozen=True)
class Feedback:
    """How a feedback value becomes a name and a reward.

    With `rewards` only its names are accepted. Without, `numeric` values are their own reward, and other names are
    accepted only if each row has a reward. `labels` renames raw values; rows with `dropped` values are dropped.
    """

    rewards: Mapping[str, float] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    numeric: bool = False
    expected: str = "a known feedback"


@dataclass(frozen=True)
class Fields:
    """The columns of a reader by role, with the names they have in the reader."""

    user: str
    item: str
    time: str | None
    time_rule: TimeRule
    feedback: str | Expression | None = None
    reward: Expression | None = None
    sequence: str | None = None
    rank: str | None = None
    is_test: str | None = None
    title: str | None = None
    price: str | None = None
    category: str | None = None
    left_out: tuple[str, str] | None = None
    """A column and a value: rows with that value are dropped, as the settings demand."""

    @property
    def parts(self) -> dict[str, str]:
        """Role -> column, for the roles that are one plain column."""
        named = {name: getattr(self, name) for name in _PLAIN}
        return {name: column for name, column in named.items() if isinstance(column, str)}


_PLAIN = ("user", "item", "time", "feedback", "sequence", "rank", "is_test", "title", "price", "category")


class Source(ABC):
    """One raw format. Subclasses are listed in `ecoc.data.sources.SOURCES`."""

    Config: ClassVar[type[PrepareConfig]] = PrepareConfig
    reference: ClassVar[Statistics | None] = None
    """The paper's statistics, for the datasets of the paper."""
    feedback: Feedback = Feedback()
    identity: Mapping[str, object] = MappingProxyType({})
    """What determines the data besides the settings."""

    def __init__(self, config: PrepareConfig, paths: Sequence[str]) -> None:
        self.config = config
        self.paths = list(paths)

    @abstractmethod
    def readers(self, bad: BadRows) -> Iterator[tuple[Reader, Fields]]:
        """The files in order, each opened and with its columns selected."""

    def items(self, bad: BadRows) -> pa.Table | None:
        """The item table, with columns item, title, price, category (NULL where unknown); None if there is no table."""
        return None

    @property
    def size(self) -> int:
        """Bytes to read, for the progress bar; 0 if unknown."""
        return sum(Path(path).stat().st_size for path in self.paths if Path(path).is_file())

    @property
    def table_size(self) -> int:
        """Estimated bytes of all rows as a table; it only decides whether the engine keeps them on disk."""
        files = [Path(path) for path in self.paths if Path(path).is_file()]
        return sum(path.stat().st_size * (12 if path.suffix in _DENSE else 3) for path in files)


def check_exists(path: Path, what: str) -> None:
    """Refuse a path that does not exist or cannot be accessed."""
    try:
        path.stat()
    except OSError as error:
        reason = "no such file or folder" if isinstance(error, FileNotFoundError) else error.strerror
        raise InputError(f"{path}: {reason}; give {what}") from None


def find_file(path: Path, names: Iterable[str], *, what: str) -> Path:
    """`path` itself if it is a file, else the first of `names` in that folder, plain or compressed."""
    check_exists(path, what)
    if not path.is_dir():
        return path
    names = list(names)
    file = _first_in(path, names)
    if file is None:
        raise InputError(f"{path}: the folder has no {' or '.join(names)}; give {what}")
    return file


def find_beside(path: Path, names: Iterable[str]) -> Path | None:
    """The first of `names`, plain or compressed, in the folder of `path`."""
    return _first_in(path.parent, list(names))


def _first_in(folder: Path, names: Sequence[str]) -> Path | None:
    candidates = (folder / (name + ending) for name in names for ending in ("", ".gz", ".zst"))
    return next((candidate for candidate in candidates if candidate.is_file()), None)
