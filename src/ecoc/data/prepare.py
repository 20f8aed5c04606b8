"""Prepare: raw log -> validated, filtered, split and numbered sequences, in a folder that is complete or absent."""

import logging
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ecoc.arguments import StrPath, as_count, as_flag, as_path, as_paths, as_text
from ecoc.data.bad_rows import BadRows
from ecoc.data.baskets import count_sharing
from ecoc.data.engine import Engine
from ecoc.data.filters import Filters, split_at_gaps
from ecoc.data.frames import FrameColumns, is_frame
from ecoc.data.schema import MANIFEST, PROVENANCE, Manifest, PreparationStep, Reason, Statistics, TimeUnit
from ecoc.data.sequences import Dataset, is_dataset, open_data
from ecoc.data.sorted_events import SortedEvents
from ecoc.data.sources import SOURCES
from ecoc.data.sources.base import PrepareConfig, Source
from ecoc.data.sources.frame import FrameLog
from ecoc.data.sources.log import LogConfig
from ecoc.data.split import split
from ecoc.data.stage import Stage, Staged
from ecoc.data.store import write_stamp
from ecoc.data.times import PER_SECOND
from ecoc.data.write import StoreWriter
from ecoc.errors import InputError
from ecoc.progress import ProgressCallback, no_progress
from ecoc.storage.atomic import json_bytes, new_folder, parse_bytes

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

_ADDED = (
    "where",
    "title",
    "price",
    "baskets",
    "drop_locked",
)  # settings newer than 0.1: recorded only if they are used
_PATHS = {"items"}  # settings that name files: they belong to the provenance, not to the data
_LOGGER = logging.getLogger("ecoc.data")
_LEAST_MEMORY = 256 << 20  # the engine cannot work with less


def prepare(
    source: "StrPath | Sequence[StrPath] | pd.DataFrame | pl.DataFrame | pa.Table",
    out: StrPath,
    *,
    format: str | None = None,
    memory: str = "4GB",
    threads: int | None = None,
    overwrite: bool = False,
    progress: ProgressCallback | None = None,
    **options: Any,
) -> Dataset:
    """Turn a raw log into a prepared dataset and open it.

    `source` is a file, a folder, several of them, a built-in world such as `world:default`, a pandas or polars frame,
    or an Arrow table. `format` names the raw format (`log` unless the source is a world); `options` are the settings
    of that format, the same as on the command line: `user item time feedback reward split min_length …`. A frame gives
    the same dataset as a Parquet file of its rows. Invalid input raises `InputError` and writes nothing.
    """
    limit = parse_bytes(as_text(memory, "memory"))
    if limit < _LEAST_MEMORY:
        raise InputError(f"memory {memory}: at least {_LEAST_MEMORY >> 20}MiB are needed")
    if threads is not None:
        threads = as_count(threads, "threads", least=1)
    given = {key: value for key, value in options.items() if value is not None}
    name, opened = _open_source(source, None if format is None else as_text(format, "format"), given)
    target = as_path(out, "out")
    with new_folder(target, overwrite=as_flag(overwrite, "overwrite"), is_ours=is_dataset) as folder:
        scratch = folder / "scratch"
        scratch.mkdir()
        cores = threads or len(os.sched_getaffinity(0))
        engine = Engine(scratch, limit, cores, on_disk=opened.table_size > limit // 3)
        try:
            _Preparation(name, opened, engine, folder, progress or no_progress).run()
        finally:
            engine.close()
        shutil.rmtree(scratch)
    return open_data(target)


def _open_source(source: object, format: str | None, options: dict[str, Any]) -> tuple[str, Source]:
    """The source that reads what was given, with its name."""
    if is_frame(source):
        if format not in (None, "log"):
            raise InputError(
                f"format {format}: a frame is prepared with format log; name its columns by user=, item=, …"
            )
        return "log", FrameLog(LogConfig.build(options, where="prepare log"), FrameColumns(source))
    paths = [os.fspath(path) for path in as_paths(source, "source")]
    if not paths:
        raise InputError("source: no path given; give a log file, a folder or a world such as world:default")
    name = format or ("world" if paths[0].startswith("world:") else "log")
    kind = SOURCES[name]
    return name, kind(kind.Config.build(options, where=f"prepare {name}"), paths)


class _Preparation:
    """One call of `prepare`, step by step."""

    def __init__(self, name: str, source: Source, engine: Engine, folder: Path, progress: ProgressCallback) -> None:
        self._name = name
        self._source = source
        self._config = source.config
        self._engine = engine
        self._folder = folder
        self._progress = progress
        self._started = time.perf_counter()
        self._warnings: list[str] = []

    def run(self) -> None:
        config, engine, progress = self._config, self._engine, self._progress
        bad = BadRows(skip=config.bad_rows == "skip")
        lookup = self._source.items(bad)
        bad.raise_or_record()
        bad.counts.clear()  # rows of the item table are not rows of the log
        stage = Stage(engine, self._source, bad, progress)
        staged = stage.run()
        if not staged.step.interactions:
            raise InputError(f"{self._source.paths[0]}: no usable rows; dropped: {_listed(staged.dropped)}")
        if config.split == "source" and "is_test" not in staged.columns:
            raise InputError(
                f"source '{self._name}' has no split of its own; use time:0.8, per-user:0.8 or leave-one-out"
            )
        sorted_events = stage.sort_events(staged, config, self._folder / "scratch")
        steps = [staged.step]
        if config.dedup != "none":
            steps.append(staged.step.model_copy(update={"name": "deduplicated", "interactions": len(sorted_events)}))
        self._warn(staged, sorted_events)
        progress("filtering", 0, 0)
        names = self._divide(sorted_events, staged.time_unit, steps)
        filters = Filters(sorted_events, config, staged.step.items)
        filters.support_and_length(config.filter)
        steps += filters.steps
        if not filters.keep.any():
            raise InputError(
                f"{self._source.paths[0]}: the filters left nothing; lower min_item_support "
                f"({config.min_item_support}) or min_length ({config.min_length})"
            )
        divided, cut = split(sorted_events, filters, config)
        progress("writing", 0, 0)
        writer = StoreWriter(engine, self._folder, sorted_events, filters.keep, staged.feedback, baskets=config.baskets)
        written = writer.write(divided, names, lookup)
        steps.append(
            PreparationStep(
                name="in the vocabulary",
                interactions=written.counts.interactions,
                sequences=written.counts.sequences,
                items=written.counts.items,
            )
        )
        dropped = {**staged.dropped, **filters.dropped}
        dropped[Reason.DUPLICATE] = staged.step.interactions - len(sorted_events)
        dropped[Reason.UNSEEN_IN_TRAIN] = written.unseen_in_train
        alternative = self._with_other_rule(sorted_events, staged.step.items) if self._source.reference else None
        manifest = Manifest(
            source=self._name,
            settings={**_recorded(config), **self._source.identity},
            feedback=staged.feedback,
            time_unit=staged.time_unit,
            cut=cut,
            rows_in=staged.rows_in,
            dropped={reason: dropped[reason] for reason in Reason if dropped.get(reason)},
            steps=tuple(steps),
            counts=written.counts,
            reference=self._source.reference,
            alternative=alternative,
            files=written.files,
        )
        manifest = manifest.model_copy(update={"checksum": manifest.computed_checksum()})
        (self._folder / MANIFEST).write_bytes(json_bytes(manifest.model_dump(mode="json")))
        (self._folder / PROVENANCE).write_bytes(json_bytes(self._provenance(bad)))
        write_stamp(self._folder, manifest)

    def _warn(self, staged: Staged, sorted_events: SortedEvents) -> None:
        """Collect what the user should know about the rows."""
        if staged.title_conflicts:
            self._warnings.append(
                f"{staged.title_conflicts:,} of {staged.step.items:,} items have several titles;"
                " the most frequent one of each is used"
            )
        sharing = count_sharing(sorted_events)
        if self._config.baskets and not sharing:
            self._warnings.append("no two events of a user have the same time, so there are no baskets")
        elif not self._config.baskets and "rank" not in staged.columns and sharing >= len(sorted_events) / 3:
            self._warnings.append(
                f"{sharing / len(sorted_events):.0%} of the events share user and time with another event, so their"
                " order is not known; if they are sets, such as the items of one purchase, pass --baskets"
            )
        for warning in self._warnings:
            _LOGGER.warning("%s: %s", self._source.paths[0], warning)

    def _divide(
        self, sorted_events: SortedEvents, unit: TimeUnit, steps: list[PreparationStep]
    ) -> NDArray[np.int64] | None:
        """Split sequences at long pauses if the settings say so; return their numbers within a user."""
        seconds = self._config.gap_seconds
        if seconds is None:
            return None
        if unit == "order":
            raise InputError("session_gap needs real times; this log has only an order")
        names = split_at_gaps(sorted_events, seconds * PER_SECOND[unit])
        steps.append(steps[-1].model_copy(update={"name": "split at pauses", "sequences": len(sorted_events.lengths)}))
        return names

    def _with_other_rule(self, sorted_events: SortedEvents, items: int) -> Statistics:
        """Statistics under the other filter rule, for a comparison with a published table."""
        other = Filters(sorted_events, self._config, items)
        other.support_and_length("single-pass" if self._config.filter == "k-core" else "k-core")
        batches = self._engine.stream(
            "SELECT dense_rank() OVER (ORDER BY user) AS user_number FROM sequence_ids ORDER BY seq"
        )
        user_number = np.concatenate([batch.column("user_number").to_numpy() for batch in batches])
        count = other.count("with the other rule")
        users = len(np.unique(user_number[sorted_events.owners[other.lengths > 0]]))
        return Statistics(users=users, items=count.items, interactions=count.interactions)

    def _provenance(self, bad: BadRows) -> dict[str, Any]:
        """Origin, duration and versions: everything that may differ between two equal datasets."""
        import duckdb
        import pyarrow

        return {
            "paths": self._source.paths,
            "files": {name: getattr(self._config, name) for name in _PATHS if getattr(self._config, name, None)},
            "bad_rows": bad.examples,
            "warnings": self._warnings,
            "seconds": round(time.perf_counter() - self._started, 3),
            "versions": {
                "python": sys.version.split()[0],
                "duckdb": duckdb.__version__,
                "pyarrow": pyarrow.__version__,
                "numpy": np.__version__,
            },
        }


def _recorded(config: PrepareConfig) -> dict[str, Any]:
    """Settings as the manifest holds them; equal rows and settings give the same bytes as in version 0.1."""
    settings = config.model_dump(mode="json", exclude=_PATHS)
    return {name: value for name, value in settings.items() if name not in _ADDED or value}


def _listed(dropped: dict[Reason, int]) -> str:
    return ", ".join(f"{reason} {rows}" for reason, rows in dropped.items()) or "none"
