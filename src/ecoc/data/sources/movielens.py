"""MovieLens in its three raw formats: `ratings.dat` (::), `u.data` (tabs), `ratings.csv`; with titles and genres."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from ecoc.data.bad_rows import BadRows
from ecoc.data.delimited import Delimited
from ecoc.data.lookups import read_lookup
from ecoc.data.readers import Reader
from ecoc.data.sources.base import Feedback, Fields, PrepareConfig, Source, find_beside, find_file
from ecoc.data.times import Epoch
from ecoc.errors import InputError

_COLUMNS = ("userId", "movieId", "rating", "timestamp")
_SEPARATORS = {"ratings.dat": "::", "u.data": "\t", "ratings.csv": ","}
_GENRES = [
    "unknown",
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
]


class MovieLens(Source):
    """MovieLens ratings: the reward is the rating, 0.5 to 5."""

    feedback = Feedback(numeric=True, expected="a rating, which is a number")

    def __init__(self, config: PrepareConfig, paths: list[str]) -> None:
        what = "ratings.dat, u.data or ratings.csv"
        super().__init__(config, [str(find_file(Path(p), _SEPARATORS, what=what)) for p in paths])

    def readers(self, bad: BadRows) -> Iterator[tuple[Reader, Fields]]:
        fields = Fields("userId", "movieId", "timestamp", Epoch("s"), feedback="rating")
        for path in map(Path, self.paths):
            separator = _separator(path)
            has_header = separator == ","
            reader = Delimited(
                path,
                bad,
                separator=separator,
                header=has_header,
                names=None if has_header else _COLUMNS,
                encoding=self.config.encoding,
            )
            reader.select(list(fields.parts.values()))
            yield reader, fields

    def items(self, bad: BadRows) -> pa.Table | None:
        path = find_beside(Path(self.paths[0]), ["movies.dat", "u.item", "movies.csv"])
        if path is None:
            return None
        kind = path.name.removesuffix(".gz").removesuffix(".zst")
        if kind == "movies.csv":
            reader = Delimited(path, bad, separator=",")
            return read_lookup(reader, item="movieId", title="title", category="genres")
        if kind == "movies.dat":
            names = ("movieId", "title", "genres")
            reader = Delimited(path, bad, separator="::", header=False, names=names, quoting=False, encoding="latin-1")
            return read_lookup(reader, item="movieId", title="title", category="genres")
        columns = ("movieId", "title", "released", "video", "link", *_GENRES)
        reader = Delimited(path, bad, separator="|", header=False, names=columns, quoting=False, encoding="latin-1")
        return read_lookup(reader, item="movieId", title="title", flags=_GENRES)


def _separator(path: Path) -> str:
    """Separator of a ratings file, by its name or else by its ending."""
    name = path.name.removesuffix(".gz").removesuffix(".zst")
    by_ending = {".dat": "::", ".data": "\t", ".csv": ","}
    separator = _SEPARATORS.get(name) or by_ending.get(Path(name).suffix)
    if separator is None:
        raise InputError(f"{path}: not a MovieLens file; give ratings.dat, u.data or ratings.csv, or use --format log")
    return separator
