"""Search over the items of a model: by id and by title, popular items first."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ecoc.serving.engine import Served


class Catalogue:
    """Ids and titles in lower case, and the order of popularity."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._ids = pc.utf8_lower(pa.array(served.ids, pa.large_string()))
        self._titles = pc.fill_null(pc.utf8_lower(pa.array(served.titles, pa.large_string())), "")
        self._popular_first = np.argsort(-served.model.vocab.popularity()[1:], kind="stable")

    def search(self, query: str, limit: int) -> tuple[list[int], int]:
        """Places (0 is item 1) of the best matches, and the number of all matches. Without a text, popular items.

        The item with this very id comes first, then items whose title or id begins with the text, then the others.
        """
        text = query.strip().lower()
        if not text:
            return self._popular_first[:limit].tolist(), len(self._ids)
        exact = _mask(pc.equal(self._ids, text))
        begins = _mask(pc.or_(pc.starts_with(self._titles, text), pc.starts_with(self._ids, text)))
        contains = _mask(pc.or_(pc.match_substring(self._titles, text), pc.match_substring(self._ids, text)))
        groups = (exact, begins & ~exact, contains & ~begins & ~exact)
        places = [place for group in groups for place in self._popular_first[group[self._popular_first]][:limit]]
        return [int(place) for place in places[:limit]], int((exact | begins | contains).sum())


def _mask(values: pa.Array) -> NDArray[np.bool_]:
    mask: NDArray[np.bool_] = values.to_numpy(zero_copy_only=False)
    return mask
