"""A source of your own: a raw format that `ecoc prepare` reads as it is published.

`python examples/own_source.py` checks it with the contract suite, then prepares a file. Its format: tab-separated,
no header; listener, ISO time, track and action, which is play, skip or like.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

import ecoc
from ecoc.data.sources import SOURCES, BadRows, Delimited, Feedback, Fields, Iso, PrepareConfig, Reader, Source
from ecoc.testing import check_source

ROWS = """\
ann\t2024-03-01T08:00:00\tsong-1\tplay
ann\t2024-03-01T08:03:10\tsong-2\tlike
bob\t2024-03-01T09:00:00\tsong-3\tplay
bob\t2024-03-01T09:10:00\tsong-1\tskip
ann\t2024-03-02T08:00:00\tsong-3\tplay
bob\t2024-03-02T10:00:00\tsong-2\tlike
"""


class ListeningConfig(PrepareConfig):
    """Settings of a listening log: a pause of 30 days starts a new sequence."""

    session_gap: str | None = Field("30d", description="a longer pause starts a new sequence")


class Listening(Source):
    """Listening log: a play is worth 1, a like 3, a skip nothing."""

    Config = ListeningConfig
    feedback = Feedback(rewards={"play": 1.0, "like": 3.0, "skip": 0.0}, expected="play, skip or like")

    def readers(self, bad: BadRows) -> Iterator[tuple[Reader, Fields]]:
        """Each file with its columns, and which column plays which part."""
        for path in self.paths:
            names = ("listener", "time", "track", "action")
            reader = Delimited(Path(path), bad, separator="\t", header=False, names=names)
            reader.select(list(names))
            yield reader, Fields("listener", "track", "time", Iso(), feedback="action")


def main(folder: Path) -> None:
    """Check the source, register it for this process, prepare a file of its format."""
    raw = folder / "listening.tsv"
    raw.write_text(ROWS)
    check_source(Listening, raw)
    SOURCES.register("listening", Listening)
    data = ecoc.prepare(raw, folder / "data", format="listening", split="leave-one-out", validation=0)
    for sequence in data:
        print(sequence.user, sequence.items)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        main(Path(scratch))
