"""The contract of a source, on raw files in its format: what was prepared is read back from the files alone."""

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from ecoc.arguments import StrPath, as_paths
from ecoc.data.prepare import prepare
from ecoc.data.schema import ARRAYS, ITEMS, MANIFEST, PROVENANCE, SEQUENCES, STAMP
from ecoc.data.sources import SOURCES, Source
from ecoc.errors import EcocError, InputError
from ecoc.testing.suite import require, run_checks, titled

Event = tuple[str, str, float, int]
"""Item, feedback, reward as stored, time."""


@dataclass(frozen=True)
class PreparedFiles:
    """A prepared folder as it lies on disk."""

    manifest: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    items: list[dict[str, Any]]
    names: list[tuple[str, str]]

    @property
    def is_train(self) -> NDArray[np.bool_]:
        """Of each event: whether it is in the training part of its sequence."""
        offsets, train = self.arrays["offsets"], self.arrays["train_lengths"]
        result = np.zeros(len(self.arrays["items"]), dtype=np.bool_)
        for start, length in zip(offsets[:-1], train, strict=True):
            result[start : start + length] = True
        return result

    def sequences(self) -> dict[tuple[str, str], tuple[list[Event], int]]:
        """(user, name) -> events and how many of them are training."""
        arrays, names = self.arrays, self.manifest["feedback"]["names"]
        result: dict[tuple[str, str], tuple[list[Event], int]] = {}
        for number, key in enumerate(self.names):
            events = range(arrays["offsets"][number], arrays["offsets"][number + 1])
            stored = [
                (
                    self.items[arrays["items"][k] - 1]["item"],
                    names[arrays["feedback"][k]],
                    float(arrays["rewards"][k]),
                    int(arrays["times"][k]),
                )
                for k in events
            ]
            result[key] = stored, int(arrays["train_lengths"][number])
        return result


def read_files(folder: Path) -> PreparedFiles:
    """What a prepared folder holds, read without the code that wrote it."""
    with pa.OSFile(str(folder / SEQUENCES)) as stream:
        names = pa.ipc.open_file(stream).read_all().to_pylist()
    return PreparedFiles(
        json.loads((folder / MANIFEST).read_bytes()),
        {name: np.load(folder / f"{name}.npy") for name in ARRAYS},
        pa.parquet.read_table(folder / ITEMS).to_pylist(),
        [(row["user"], row["sequence"]) for row in names],
    )


def leaks(files: PreparedFiles) -> list[str]:
    """Every way in which test data could have reached training; none is right."""
    arrays, is_train, faults = files.arrays, files.is_train, []
    lengths = np.diff(arrays["offsets"])
    if len(set(files.names)) != len(files.names) or len(files.names) != len(lengths):
        faults.append("a sequence occurs twice")
    if arrays["offsets"][0] or (lengths <= 0).any() or arrays["offsets"][-1] != len(arrays["items"]):
        faults.append("the sequences do not divide the events among them")
    if ((arrays["train_lengths"] < 0) | (arrays["train_lengths"] > lengths)).any():
        faults.append("a training part is longer than its sequence")
    if (arrays["train_lengths"][arrays["is_validation"]] < 2).any():
        faults.append("a validation sequence has nothing to predict")
    vocabulary = set(range(1, len(files.items) + 1))
    if [row["index"] for row in files.items] != sorted(vocabulary):
        faults.append("items are not numbered 1..n")
    if set(arrays["items"][is_train].tolist()) != vocabulary:
        faults.append("the vocabulary is not the items of the training parts")
    if not set(arrays["items"][~is_train].tolist()) <= vocabulary:
        faults.append("a test item is outside the vocabulary")
    cut = files.manifest["cut"]
    if cut is not None and (arrays["times"][~is_train] < cut).any():
        faults.append("a test time lies before the cut")
    if cut is not None and (arrays["times"][is_train] >= cut).any():
        faults.append("a training time does not lie before the cut")
    learnt = is_train & ~np.repeat(arrays["is_validation"], np.maximum(lengths, 0))[: len(is_train)]
    counts = np.bincount(arrays["items"][learnt], minlength=len(vocabulary) + 1)[1:]
    if [row["train_count"] for row in files.items] != counts[: len(vocabulary)].tolist():
        faults.append("train_count counts something else than what is learnt from")
    return faults


@dataclass(frozen=True)
class SourceCase:
    """A registered source with raw files in its format, and a folder for what is prepared from them."""

    name: str
    paths: Sequence[StrPath]
    folder: Path
    options: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def prepared(self) -> Path:
        """The files, prepared."""
        return self.prepare("prepared")

    @cached_property
    def files(self) -> PreparedFiles:
        """What lies there."""
        return read_files(self.prepared)

    def prepare(self, name: str, **options: Any) -> Path:
        """The files, prepared with other options."""
        out = self.folder / name
        prepare(list(self.paths), out, format=self.name, **{"threads": 1, **self.options, **options})
        return out


def check_source(kind: type[Source], *paths: StrPath, **options: Any) -> None:
    """Check that a source class keeps the contract on raw files; AssertionError says which part of it is broken.

    The files should hold some hundred rows, with repeated users and items; `options` are those of `ecoc.prepare`.
    """
    name = f"checked_{kind.__name__.lower()}"
    with tempfile.TemporaryDirectory() as folder, SOURCES.registered(name, kind):
        case = SourceCase(name, as_paths(list(paths), "paths"), Path(folder), options)
        try:
            files = case.files
        except EcocError as error:
            raise AssertionError(f"{kind.__name__}: the files cannot be prepared: {error}") from error
        require(files.manifest["counts"]["interactions"] > 0, f"{kind.__name__}: no events were prepared")
        run_checks(kind.__name__, SOURCE_CHECKS, case)


def accounts_for_every_row(case: SourceCase) -> None:
    """Rows in are rows kept and rows dropped, by reason."""
    manifest, kept = case.files.manifest, len(case.files.arrays["items"])
    require(manifest["counts"]["interactions"] == kept, "counts and arrays hold other numbers of events")
    dropped = sum(manifest["dropped"].values())
    message = f"{manifest['rows_in']} rows in, {kept} kept and {dropped} dropped"
    require(manifest["rows_in"] == kept + dropped, message)


def counts_what_was_written(case: SourceCase) -> None:
    """Counts are those of the written events."""
    files, sequences = case.files, case.files.sequences()
    held_out = dict(zip(files.names, files.arrays["is_validation"].tolist(), strict=True))
    parts = {key: (train, len(events) - train) for key, (events, train) in sequences.items()}
    expected = {
        "interactions": sum(len(events) for events, _ in sequences.values()),
        "users": len({user for user, _ in sequences}),
        "sequences": len(sequences),
        "items": len(files.items),
        "train": sum(train for key, (train, _) in parts.items() if not held_out[key]),
        "validation": sum(train for key, (train, _) in parts.items() if held_out[key]),
        "test": sum(test for _, test in parts.values()),
        "test_targets": sum(test if train else max(0, test - 1) for train, test in parts.values()),
        "train_sequences": sum(train > 0 and not held_out[key] for key, (train, _) in parts.items()),
        "validation_sequences": sum(held_out.values()),
        "test_sequences": sum(test > 0 for _, test in parts.values()),
    }
    for name, count in expected.items():
        written = files.manifest["counts"][name]
        require(written == count, f"{name}: the manifest says {written}, the files hold {count}")


def orders_by_time(case: SourceCase) -> None:
    """Events of a sequence are in order of time."""
    for (user, _), (events, _) in case.files.sequences().items():
        times = [time for *_, time in events]
        require(times == sorted(times), f"the events of user {user!r:.40} are not in order of time")


def has_rewards_of_its_feedback(case: SourceCase) -> None:
    """Equal feedback has an equal reward where the source says so."""
    feedback = case.files.manifest["feedback"]
    require(np.isfinite(case.files.arrays["rewards"]).all(), "a reward is not finite")
    if feedback["rewards"] is not None:
        expected = np.array(feedback["rewards"], np.float32)[case.files.arrays["feedback"]]
        require(np.array_equal(expected, case.files.arrays["rewards"]), "rewards differ from those of the feedback")


def leaks_nothing(case: SourceCase) -> None:
    """Nothing leaks from test to training."""
    faults = leaks(case.files)
    require(not faults, "; ".join(faults))


def repeats(case: SourceCase) -> None:
    """A second run, and one with two threads, write the same bytes."""
    expected = _contents(case.prepared)
    for name, threads in (("again", 1), ("threads", 2)):
        other = _contents(case.prepare(name, threads=threads))
        different = sorted(name for name in expected if other.get(name) != expected[name])
        require(not different, f"{', '.join(different)} differ between two runs")


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in (PROVENANCE, STAMP)}


def writes_its_seed(case: SourceCase) -> None:
    """Another seed writes another manifest, so that equal bytes mean something."""
    other = case.prepare("seeded", seed=case.files.manifest["settings"]["seed"] + 1)
    require((other / MANIFEST).read_bytes() != (case.prepared / MANIFEST).read_bytes(), "the seed has no effect")


def refuses_what_is_not_there(case: SourceCase) -> None:
    """A path at which there is nothing is refused by an InputError of one line."""
    missing = case.folder / "nothing" / "here"
    try:
        prepare(missing, case.folder / "missing", format=case.name, **case.options)
    except InputError as error:
        require("\n" not in str(error), "the refusal of a missing path has several lines")
    except Exception as error:
        raise AssertionError(f"a missing path raises {type(error).__name__}: {error}; check it exists") from error
    else:
        raise AssertionError("a missing path is not refused")
    require(not (case.folder / "missing").exists(), "a refused source leaves a folder behind")


SOURCE_CHECKS: dict[str, Callable[[SourceCase], None]] = titled(
    accounts_for_every_row,
    counts_what_was_written,
    orders_by_time,
    has_rewards_of_its_feedback,
    leaks_nothing,
    repeats,
    writes_its_seed,
    refuses_what_is_not_there,
)
"""Every part of the contract, by what it states."""
