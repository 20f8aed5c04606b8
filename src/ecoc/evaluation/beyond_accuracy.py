"""Beyond accuracy: coverage of the catalogue, popularity of listed items, diversity of a list."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ecoc.batch import PAD, TrainSequences

Ints = NDArray[np.int64]
_LISTS, _SESSIONS = 200, 5000  # sampled to measure diversity


def coverage(lists: Ints, items: int) -> float:
    """Share of the catalogue that is in any list."""
    return len(np.unique(lists[lists != PAD])) / items


def popularity_lift(lists: Ints, histories: Ints, share: NDArray[np.float32]) -> float:
    """Mean popularity of listed items over that of the users' own items, minus 1."""
    own = share[histories[histories != PAD]].mean(dtype=np.float64)
    if not (lists != PAD).any():
        return 0.0
    return float(share[lists[lists != PAD]].mean(dtype=np.float64) / own - 1)


def diversity(lists: Ints, sessions: TrainSequences, items: int) -> float:
    """Mean over pairs of a list of 1 - Jaccard overlap of the training sequences that hold the two items.

    The overlap comes from the log, not from a model's vectors, so it is the same measure for all methods.
    """
    random = np.random.default_rng(0)
    lists = lists[random.permutation(len(lists))[:_LISTS]]
    picked = np.sort(random.permutation(len(sessions.offsets) - 1)[:_SESSIONS])
    counts = np.diff(sessions.offsets)[picked]
    event = np.arange(counts.sum()) + np.repeat(sessions.offsets[picked] - (np.cumsum(counts) - counts), counts)
    row = np.repeat(np.arange(len(picked)), counts)
    shown, column = np.unique(lists, return_inverse=True)
    place = np.full(items + 1, -1)
    place[shown] = np.arange(len(shown))
    kept = place[sessions.items[event]] >= 0
    holds = csr_array(
        (np.ones(kept.sum(), np.float32), (place[sessions.items[event][kept]], row[kept])), (len(shown), len(picked))
    )
    holds.data[:] = 1  # an item twice in a sequence is in it once
    size = holds.sum(1)
    a, b = np.triu_indices(lists.shape[1], 1)
    column = column.reshape(lists.shape)
    both = _overlaps(holds, column[:, a].ravel(), column[:, b].ravel())
    either = size[column[:, a].ravel()] + size[column[:, b].ravel()] - both
    is_pair = (lists[:, a] != PAD).ravel() & (lists[:, b] != PAD).ravel()
    if not is_pair.any():
        return 0.0
    return float(1 - np.divide(both, either, out=np.zeros_like(both), where=either > 0)[is_pair].mean())


def _overlaps(holds: csr_array, a: Ints, b: Ints) -> NDArray[np.float64]:
    """Columns shared by rows a[k] and b[k]."""
    count = holds.shape[0]
    pair, back = np.unique(np.minimum(a, b) * count + np.maximum(a, b), return_inverse=True)
    shared = holds[pair // count].multiply(holds[pair % count]).sum(1)
    return np.asarray(shared, np.float64)[back]
