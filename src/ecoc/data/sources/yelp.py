"""Yelp open dataset: `yelp_academic_dataset_review.json`, one review per line; the reward is the number of stars."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa
from pydantic import Field

from ecoc.data.bad_rows import BadRows
from ecoc.data.lookups import read_lookup
from ecoc.data.readers import JsonLines, Reader
from ecoc.data.schema import Statistics
from ecoc.data.sources.base import Feedback, Fields, PrepareConfig, Source, find_beside, find_file
from ecoc.data.times import Pattern

_REVIEWS = "yelp_academic_dataset_review.json"
_BUSINESSES = "yelp_academic_dataset_business.json"


class YelpConfig(PrepareConfig):
    """Settings: the filters of the paper; exact copies of a review are dropped."""

    min_item_support: int = Field(10, ge=1, description="items with fewer events are dropped")
    min_length: int = Field(10, ge=1, description="sequences with fewer events are dropped")
    dedup: Literal["none", "exact", "feedback"] = Field("exact", description="exact copies are dropped")
    reward_rule: Literal["paper", "code"] = Field(
        "paper",
        description="paper: the number of stars; code: -0.5 for four or five stars, else -1, as in the released code",
    )


class Yelp(Source):
    """Yelp reviews (2022 release): item = business, feedback = stars 1 to 5."""

    Config = YelpConfig
    reference = Statistics(users=72_487, items=43_748, interactions=2_043_402)

    def __init__(self, config: YelpConfig, paths: list[str]) -> None:
        super().__init__(config, [str(find_file(Path(p), [_REVIEWS], what=f"the file {_REVIEWS}")) for p in paths])
        is_code = config.reward_rule == "code"
        rewards = {str(stars): (-0.5 if stars >= 4 else -1.0) if is_code else float(stars) for stars in range(1, 6)}
        labels = {f"{stars}.0": str(stars) for stars in range(1, 6)}
        self.feedback = Feedback(rewards, labels, expected="stars from 1 to 5")

    def readers(self, bad: BadRows) -> Iterator[tuple[Reader, Fields]]:
        fields = Fields("user_id", "business_id", "date", Pattern("%Y-%m-%d %H:%M:%S"), feedback="stars")
        for path in self.paths:
            reader = JsonLines(Path(path), bad, encoding=self.config.encoding)
            reader.select(list(fields.parts.values()))
            yield reader, fields

    def items(self, bad: BadRows) -> pa.Table | None:
        path = find_beside(Path(self.paths[0]), [_BUSINESSES])
        if path is None:
            return None
        return read_lookup(JsonLines(path, bad), item="business_id", title="name", category="categories")
