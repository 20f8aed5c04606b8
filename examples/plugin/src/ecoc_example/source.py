"""A source: web visits, one comma-separated row per visit with the columns visitor, page, at and bought."""

from collections.abc import Iterator
from pathlib import Path

from ecoc.data.sources import BadRows, Delimited, Epoch, Feedback, Fields, Reader, Source


class Visits(Source):
    """Web visits: a visit is worth 1, a visit that ends in a purchase 3."""

    feedback = Feedback(
        rewards={"visit": 1.0, "buy": 3.0}, labels={"no": "visit", "yes": "buy"}, expected="bought yes or no"
    )

    def readers(self, bad: BadRows) -> Iterator[tuple[Reader, Fields]]:
        """Each file with its columns, and which column plays which part."""
        fields = Fields("visitor", "page", "at", Epoch("s"), feedback="bought")
        for path in self.paths:
            reader = Delimited(Path(path), bad, separator=",", encoding=self.config.encoding)
            reader.select(list(fields.parts.values()))
            yield reader, fields
