"""Any event log: CSV, TSV, Parquet or JSON lines; plain, gzip or zstd; one file, several files or a folder."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import duckdb
import pyarrow as pa
from pydantic import BeforeValidator, Field, model_validator

from ecoc.arguments import as_path
from ecoc.data.bad_rows import BadRows
from ecoc.data.delimited import Delimited
from ecoc.data.engine import Engine
from ecoc.data.expression import Expression, LogColumn, columns_of, parse
from ecoc.data.lookups import read_lookup
from ecoc.data.readers import JsonLines, ParquetRows, Reader
from ecoc.data.schema import GREATEST_REWARD
from ecoc.data.sources.base import Feedback, Fields, PrepareConfig, Source, check_exists
from ecoc.data.sql_columns import SqlColumn, literal
from ecoc.data.text import read_head
from ecoc.data.times import Pattern, RowOrder, TimeRule, rule_for
from ecoc.errors import InputError, did_you_mean

_ENDINGS = {".csv", ".tsv", ".txt", ".log", ".dat", ".json", ".jsonl", ".ndjson", ".parquet", ".pq"}
_JSON = {".json", ".jsonl", ".ndjson"}
_DROP = "drop"
_NAME = re.compile(r"[^\W\d][\w.]*")


def _as_reward_map(value: Any) -> Any:
    """`'click=1,buy=3'` as a dictionary; the value `drop` is allowed too."""
    if not isinstance(value, str):
        return value
    result: dict[str, Any] = {}
    for pair in value.split(","):
        name, equals, number = (part.strip() for part in pair.rpartition("="))
        if not equals or not name:
            raise ValueError(f"{pair!r} is not name=number; expected e.g. 'click=1,buy=3'")
        result[name] = number
    return result


def _as_number_or_drop(value: Any) -> Any:
    if value == _DROP:
        return value
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{value!r} is not a number; expected e.g. 'click=1,buy=3' or 'view=drop'") from None
    if not abs(number) <= GREATEST_REWARD:
        raise ValueError(f"reward {value!r} is not a finite 32-bit number; expected e.g. 'click=1,buy=3'")
    return number


RewardOf = Annotated[float | Literal["drop"], BeforeValidator(_as_number_or_drop)]


class LogConfig(PrepareConfig):
    """Columns of the log and of its item table, and how to read them."""

    user: str = Field(description="column of the user id")
    item: str = Field(description="column of the item id")
    time: str | None = Field(None, description="column of the time; not needed with time_format=order")
    time_format: str = Field(
        "auto", description="auto, epoch[-s|-ms|-us|-ns], iso, order (rows are in time order) or a strptime pattern"
    )
    feedback: str | None = Field(
        None, description="column or expression of the feedback: names, or numbers that are the reward"
    )
    reward: Annotated[dict[str, RewardOf] | None, BeforeValidator(_as_reward_map)] = Field(
        None, description="reward of each feedback, e.g. 'click=1,buy=3'; name=drop drops its rows"
    )
    reward_column: str | None = Field(
        None, min_length=1, description="numeric column, or an expression of columns: quantity*price"
    )
    items: str | None = Field(None, description="file of items with titles, prices, categories")
    items_id: str | None = Field(
        None, description="id column of the items file (default: the name of the item column of the log)"
    )
    items_title: str | None = Field(None, description="title column of the items file (default: 'title', if it exists)")
    items_price: str | None = Field(None, description="price column of the items file (default: 'price', if it exists)")
    items_category: str | None = Field(
        None, description="category column of the items file (default: 'category', if it exists)"
    )
    title: str | None = Field(None, description="column of the item title in the log; the most frequent one counts")
    price: str | None = Field(None, description="column of the item price in the log; the most frequent one counts")
    category: str | None = Field(None, description="column of the item category in the log")
    delimiter: str | None = Field(None, description="field separator (default: guessed from the first line)")
    header: bool = Field(True, description="the first line names the columns; without a header they are called 1, 2, …")
    quoting: bool = Field(True, description="fields may be quoted; if off, quotes are plain text")

    @model_validator(mode="after")
    def _consistent(self) -> "LogConfig":
        if self.time is None and self.time_format != "order":
            raise ValueError("time: name the time column, or pass time_format=order if rows are in time order")
        if self.baskets and self.time_format == "order":
            raise ValueError("baskets: it needs a time column; with time_format=order every row has its own time")
        if self.reward is not None and not all(name.strip() for name in self.reward):
            raise ValueError("reward: a feedback without a name; expected e.g. 'click=1,buy=3'")
        if self.reward is not None and self.feedback is None:
            raise ValueError("reward: it needs the feedback column; name it with feedback")
        if self.reward is not None and self.reward_column is not None:
            raise ValueError("reward: give reward or reward_column, not both")
        if self.delimiter is not None and self.delimiter != "\\t" and not self.delimiter:
            raise ValueError("delimiter: expected at least one character")
        return self


class Log(Source):
    """A log of any origin, described by its column names."""

    Config = LogConfig
    config: LogConfig

    def __init__(self, config: LogConfig, paths: list[str]) -> None:
        super().__init__(config, [str(path) for given in paths for path in _files(Path(given))])
        self.config = config
        self._rule: TimeRule | None = None
        if config.feedback is None:
            self.feedback = Feedback({"event": 1.0} if config.reward_column is None else None)
        elif config.reward is not None:
            rewards = {name: reward for name, reward in config.reward.items() if isinstance(reward, float)}
            dropped = frozenset(name for name in config.reward if name not in rewards)
            self.feedback = Feedback(rewards, dropped=dropped, expected=f"one of {', '.join(config.reward)}")
        else:
            self.feedback = Feedback(
                numeric=config.reward_column is None,
                expected="a number; for names, pass their rewards, e.g. --reward 'click=1,buy=3'",
            )

    def readers(self, bad: BadRows) -> Iterator[tuple[Reader, Fields]]:
        config = self.config
        for path in map(Path, self.paths):
            reader = self._open(path, bad)
            reward = parse(config.reward_column, reader.columns) if config.reward_column else None
            feedback = _feedback(config.feedback, reader.columns)
            plain = (config.user, config.item, config.time, config.title, config.price, config.category)
            names = [name for name in plain if name is not None]
            for expression in (feedback, reward):
                names += columns_of(expression) if expression else []
            reader.select(names)
            if self._rule is None:
                self._rule = self._time_rule(reader)
            yield (
                reader,
                Fields(
                    config.user,
                    config.item,
                    None if isinstance(self._rule, RowOrder) else config.time,
                    self._rule,
                    feedback=feedback.name if isinstance(feedback, LogColumn) else feedback,
                    reward=reward,
                    title=config.title,
                    price=config.price,
                    category=config.category,
                ),
            )

    def items(self, bad: BadRows) -> pa.Table | None:
        config = self.config
        if config.items is None:
            return None
        reader = self._open(Path(config.items), bad)
        parts = {"title": config.items_title, "price": config.items_price, "category": config.items_category}
        named = {part: name or (part if part in reader.columns else None) for part, name in parts.items()}
        if not any(named.values()):
            raise InputError(
                f"{config.items}:1: no column 'title', 'price' or 'category'; name them, e.g. --set items_title=NAME "
                f"({did_you_mean('title', reader.columns)})"
            )
        return read_lookup(
            reader,
            item=config.items_id or config.item,
            title=named["title"],
            price=named["price"],
            category=named["category"],
        )

    def _time_rule(self, reader: Reader) -> TimeRule:
        column = self.config.time
        if column is None or self.config.time_format == "order":
            return RowOrder()
        samples = reader.samples(column)
        try:
            rule = rule_for(self.config.time_format, reader.sql_column(column), [value for _, value in samples])
        except InputError as error:
            raise InputError(f"{reader.path}:{reader.line_of(samples[0][0])}: {error}") from None
        if isinstance(rule, Pattern):
            _check_pattern(rule, self.config.time_format)
        return rule

    def _open(self, path: Path, bad: BadRows) -> Reader:
        config = self.config
        if read_head(path, 4) == b"PAR1":
            return ParquetRows(path)
        ending = _ending(path)
        if ending in {".parquet", ".pq"}:
            raise InputError(
                f"{path}:1: the name ends in {ending} but this is not a Parquet file; write it again or rename it"
            )
        if ending in _JSON:
            return JsonLines(path, bad, encoding=config.encoding)
        separator = "\t" if config.delimiter == "\\t" else config.delimiter
        return Delimited(
            path, bad, separator=separator, header=config.header, quoting=config.quoting, encoding=config.encoding
        )


def _feedback(text: str | None, columns: Sequence[str]) -> Expression | None:
    """The feedback as a column or an expression; of a plain name the reader says whether there is such a column."""
    if text is None:
        return None
    return LogColumn(text) if _NAME.fullmatch(text) else parse(text, columns, "--feedback", "text")


def _files(path: Path) -> list[Path]:
    """A file, or the log files of a folder, sorted by name."""
    check_exists(path, "a log")
    if not path.is_dir():
        return [path]
    files = [
        entry
        for entry in sorted(path.iterdir())
        if entry.is_file() and _ending(entry) in _ENDINGS and not entry.name.startswith((".", "_"))
    ]
    for file in files:
        as_path(file, "log file")  # its name must be UTF-8
    if not files:
        raise InputError(f"{path}: the folder has no log files; expected names ending in {', '.join(sorted(_ENDINGS))}")
    return files


def _check_pattern(rule: Pattern, text: str) -> None:
    """Try a strptime pattern on an empty text: the engine refuses codes it does not support."""
    engine = Engine()
    try:
        engine.run(f"SELECT {rule.sql(SqlColumn(literal('')))}")
    except duckdb.InvalidInputException as error:
        raise InputError(f"--time-format {text!r}: {str(error).splitlines()[0]}; expected e.g. %d/%m/%Y") from None
    finally:
        engine.close()


def _ending(path: Path) -> str:
    """The file ending without .gz or .zst, in lower case."""
    return Path(path.name.lower().removesuffix(".gz").removesuffix(".zst")).suffix
