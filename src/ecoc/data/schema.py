"""The format of prepared data: its arrays, drop reasons, reward map and manifest."""

import hashlib
from enum import StrEnum
from typing import Literal

from pydantic import Field

from ecoc.config import Config
from ecoc.storage.atomic import json_bytes

GREATEST_REWARD = 3e38
"""Largest absolute reward: the store keeps rewards as float32."""
GREATEST_UNIT = 3.4e38
"""The most that a reward of 1 in training may be worth in the data: a float32 above every reward."""

FORMAT = "ecoc-dataset"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
PROVENANCE = "provenance.json"
STAMP = "stamp.json"
ITEMS = "items.parquet"
SEQUENCES = "sequences.arrow"

ARRAYS = {
    "items": "<i4",
    "feedback": "|u1",
    "rewards": "<f4",
    "times": "<i8",
    "offsets": "<i8",
    "train_lengths": "<i8",
    "is_validation": "|b1",
}
"""The sequence store: array -> dtype. `items feedback rewards times`: one entry per event; others: one per sequence."""

FILES = frozenset({*(f"{name}.npy" for name in ARRAYS), ITEMS, SEQUENCES})
"""Every file of a prepared dataset besides its manifest, provenance and stamp."""


class Reason(StrEnum):
    """Why a row of the log is not in the dataset. Order matters: a row with two reasons counts under the first."""

    MALFORMED_ROW = "malformed_row"
    BLANK_USER = "blank_user"
    BLANK_ITEM = "blank_item"
    DROPPED_BY_SOURCE = "dropped_by_source"
    DROPPED_BY_WHERE = "dropped_by_where"
    MALFORMED_ID = "malformed_id"
    BAD_TIME = "bad_time"
    BAD_REWARD = "bad_reward"
    DROPPED_FEEDBACK = "dropped_feedback"
    BAD_FEEDBACK = "bad_feedback"
    DUPLICATE = "duplicate"
    RARE_ITEM = "rare_item"
    SHORT_SEQUENCE = "short_sequence"
    UNSEEN_IN_TRAIN = "unseen_in_train"


class RewardMap(Config):
    """Feedback value -> reward. `names` has the name of codes 0, 1, …; without `rewards` each row has its own."""

    names: tuple[str, ...] = Field(description="feedback names by code")
    rewards: tuple[float, ...] | None = Field(
        None, description="reward of each feedback; null if each row has its own reward"
    )


class PreparationStep(Config):
    """Numbers left after one step of preparation."""

    name: str
    interactions: int
    sequences: int
    items: int


class Counts(Config):
    """Sizes of a prepared dataset. `interactions` = `train` + `validation` + `test`, all counted in events."""

    interactions: int = Field(description="events in the store")
    users: int = Field(description="distinct users")
    sequences: int = Field(description="sequences: one per user, or more if split at pauses or into slates")
    items: int = Field(description="items of the vocabulary: those with at least one training or validation event")
    train: int = Field(description="training events")
    validation: int = Field(description="events before the split in sequences held out for validation")
    test: int = Field(description="events after the split")
    test_targets: int = Field(description="test events with at least one earlier event in their sequence")
    train_sequences: int = Field(description="sequences with training events, without those held out for validation")
    validation_sequences: int = Field(description="sequences held out for validation")
    test_sequences: int = Field(description="sequences with test events")


class Statistics(Config):
    """Numbers of users, items and interactions, as in the table of a paper."""

    users: int
    items: int
    interactions: int


class FileRecord(Config):
    """Size and checksum of one file of the folder."""

    bytes: int
    sha256: str


TimeUnit = Literal["s", "ms", "us", "ns", "order"]


class Manifest(Config):
    """`manifest.json`: everything about a prepared dataset that depends on its rows and settings alone.

    Paths, dates and the machine are in `provenance.json`, so equal data give equal manifests, byte for byte.
    """

    format: Literal["ecoc-dataset"] = "ecoc-dataset"
    version: Literal[1] = 1
    source: str = Field(description="name of the source format")
    settings: dict[str, object] = Field(description="effective settings of prepare, without paths and machine limits")
    feedback: RewardMap
    time_unit: TimeUnit = Field(description="unit of `times`; `order` means only the order is known")
    cut: int | None = Field(description="first test time of a global time split, in `time_unit`")
    rows_in: int = Field(description="rows of the log; equals interactions plus the sum of `dropped`")
    dropped: dict[Reason, int]
    steps: tuple[PreparationStep, ...]
    counts: Counts
    reference: Statistics | None = Field(None, description="the paper's statistics of this dataset, if it has any")
    alternative: Statistics | None = Field(None, description="statistics under the other filter rule")
    files: dict[str, FileRecord]
    checksum: str = Field("", description="SHA-256 of this manifest without this field")

    def computed_checksum(self) -> str:
        """The checksum this manifest should hold; it covers every file through its checksum."""
        return hashlib.sha256(json_bytes(self.model_dump(mode="json", exclude={"checksum"}))).hexdigest()
