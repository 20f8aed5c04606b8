"""Opening a large dataset: with the full check of every value, and with the stamp that says it was done.

python benchmarks/open_data.py [--events 10000000]
"""

import argparse
import hashlib
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import ecoc
from ecoc.data.schema import ARRAYS, FILES, ITEMS, MANIFEST, SEQUENCES, Counts, FileRecord, Manifest, RewardMap
from ecoc.storage.atomic import json_bytes
from ecoc.storage.trusted import file_sha256

LENGTH = 50  # events of a sequence
ITEM_COUNT = 60_000


def write_dataset(folder: Path, events: int) -> None:
    """A dataset of random events; the last fifth of each sequence is for the test."""
    rng = np.random.default_rng(0)
    sequences = events // LENGTH
    events = sequences * LENGTH
    train = LENGTH * 4 // 5
    arrays = {
        "items": rng.integers(1, ITEM_COUNT + 1, events, np.int32),
        "feedback": rng.integers(0, 2, events, np.uint8),
        "rewards": rng.random(events, np.float32),
        "times": np.tile(np.arange(LENGTH), sequences),
        "offsets": np.arange(0, events + 1, LENGTH),
        "train_lengths": np.full(sequences, train),
        "is_validation": np.zeros(sequences, bool),
    }
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values.astype(ARRAYS[name]))
    trained = arrays["items"].reshape(sequences, LENGTH)[:, :train]
    names = pa.array([f"item {place}" for place in range(ITEM_COUNT)])
    items = pa.table(
        {
            "index": pa.array(np.arange(1, ITEM_COUNT + 1), pa.int32()),
            "item": names,
            "title": names,
            "price": pa.nulls(ITEM_COUNT, pa.float64()),
            "category": pa.nulls(ITEM_COUNT, pa.string()),
            "train_count": np.bincount(trained.ravel(), minlength=ITEM_COUNT + 1)[1:],
        }
    )
    pq.write_table(items, folder / ITEMS)
    users = pa.array([f"u{place:09}" for place in range(sequences)])
    table = pa.table({"user": users, "sequence": users})
    with pa.OSFile(str(folder / SEQUENCES), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    manifest = Manifest(
        source="log",
        settings={},
        feedback=RewardMap(names=("view", "buy")),
        time_unit="order",
        cut=None,
        rows_in=events,
        dropped={},
        steps=(),
        counts=Counts(
            interactions=events,
            users=sequences,
            sequences=sequences,
            items=ITEM_COUNT,
            train=sequences * train,
            validation=0,
            test=events - sequences * train,
            test_targets=events - sequences * train,
            train_sequences=sequences,
            validation_sequences=0,
            test_sequences=sequences,
        ),
        files={
            name: FileRecord(bytes=(folder / name).stat().st_size, sha256=file_sha256(folder / name)) for name in FILES
        },
    )
    content = manifest.model_dump(mode="json", exclude={"checksum"})
    content["checksum"] = hashlib.sha256(json_bytes(content)).hexdigest()
    (folder / MANIFEST).write_bytes(json_bytes(content))


def seconds_to_open(folder: Path) -> float:
    """Seconds until a dataset is open."""
    start = time.perf_counter()
    ecoc.open_data(folder)
    return time.perf_counter() - start


def main() -> None:
    """Print the seconds of the first opening, which checks every value, and of later ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    events = parser.parse_args().events
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_dataset(folder, events)
        size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
        time.sleep(0.1)  # files that changed in the last moment are not vouched for
        print(f"{events:,} events, {size:,.0f} MB")
        print(f"  first opening, every value checked   {seconds_to_open(folder):7.3f} s")
        print(f"  later openings, best of five         {min(seconds_to_open(folder) for _ in range(5)):7.3f} s")
        print(
            f"  peak memory, with writing it         {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:7.0f} MB"
        )


if __name__ == "__main__":
    main()
