"""What prepared data is: drop reasons, the reward map and the manifest."""

import hashlib
from enum import StrEnum
from typing import Literal

from pydantic import Field

from ecoc.config import Config
from ecoc.storage.atomic import json_bytes

GREATEST_REWARD = 3e38
"""The store keeps rewards as float32."""

FORMAT = "ecoc-dataset"
FORMAT_VERSION = 1
MANIFEST = "manifest.json"
PROVENANCE = "provenance.json"
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
"""The sequence store: array -> dtype. `items feedback rewards times` one entry an event, the rest one a sequence."""

FILES = frozenset({*(f"{name}.npy" for name in ARRAYS), ITEMS, SEQUENCES})
"""Every file of a prepared dataset besides its manifest and provenance."""


class Reason(StrEnum):
    """Why a row of the log is not in the dataset. Order matters: a row that fails twice counts under the first."""

    MALFORMED_ROW = "malformed_row"
    BLANK_USER = "blank_user"
    BLANK_ITEM = "blank_item"
    DROPPED_BY_SOURCE = "dropped_by_source"
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
    """Feedback value -> reward. `names` are the feedback codes 0, 1, …; without `rewards` each row brought its own."""

    names: tuple[str, ...] = Field(description="feedback names by code")
    rewards: tuple[float, ...] | None = Field(None, description="reward of each feedback; none if the log has its own")


class Step(Config):
    """How much was left after one step of preparation."""

    name: str
    interactions: int
    sequences: int
    items: int


class Counts(Config):
    """What a prepared dataset holds. `interactions` = `train` + `validation` + `test`, all counted in events."""

    interactions: int = Field(description="events in the store")
    users: int = Field(description="distinct users")
    sequences: int = Field(description="sequences: one a user, or more when split at gaps or slates")
    items: int = Field(description="items of the vocabulary, that is, with an event before the split")
    train: int = Field(description="events to learn from")
    validation: int = Field(description="training events of the sequences held out for validation")
    test: int = Field(description="events after the split")
    test_targets: int = Field(description="test events with at least one earlier event in their sequence")
    train_sequences: int = Field(description="sequences with training events, validation ones not counted")
    validation_sequences: int = Field(description="sequences held out for validation")
    test_sequences: int = Field(description="sequences with test events")


class Statistics(Config):
    """Users, items and interactions as a paper's table counts them."""

    users: int
    items: int
    interactions: int


class FileRecord(Config):
    """Size and checksum of one file of the folder."""

    bytes: int
    sha256: str


TimeUnit = Literal["s", "ms", "us", "ns", "order"]


class Manifest(Config):
    """`manifest.json`: everything about a prepared dataset that its rows and settings decide, and nothing else.

    Paths, dates and machine are in `provenance.json`, so equal data give equal manifests, byte for byte.
    """

    format: Literal["ecoc-dataset"] = "ecoc-dataset"
    version: Literal[1] = 1
    source: str = Field(description="name of the source format")
    settings: dict[str, object] = Field(description="effective settings of prepare, without paths and machine limits")
    feedback: RewardMap
    time_unit: TimeUnit = Field(description="unit of `times`; `order` means only the order is known")
    cut: int | None = Field(description="first test time of a global time split, in `time_unit`")
    rows_in: int = Field(description="rows of the log; equals interactions plus everything in `dropped`")
    dropped: dict[Reason, int]
    steps: tuple[Step, ...]
    counts: Counts
    reference: Statistics | None = Field(None, description="the paper's statistics of this dataset, where it has them")
    alternative: Statistics | None = Field(None, description="what the other filter rule would have kept")
    files: dict[str, FileRecord]
    checksum: str = Field("", description="SHA-256 over this manifest without this field")

    def computed_checksum(self) -> str:
        """The checksum this manifest should carry; it covers every file through their checksums."""
        return hashlib.sha256(json_bytes(self.model_dump(mode="json", exclude={"checksum"}))).hexdigest()
