"""The approximate index: what it finds, when it is rebuilt, and that it survives in a state."""

from itertools import pairwise

import torch
from torch import Tensor

from ecoc.methods.ecoc.cluster_index import ClusterIndex

ITEMS, DIM, TOPICS = 900, 8, 30


def topics(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Centres [TOPICS, DIM] and a table of items around them, PAD's row first."""
    draw = torch.Generator().manual_seed(seed)
    centres = 3 * torch.nn.functional.normalize(torch.randn(TOPICS, DIM, generator=draw), dim=1)
    own = torch.arange(ITEMS) % TOPICS
    table = centres[own] + 0.1 * torch.randn(ITEMS, DIM, generator=draw)
    return centres, torch.cat([torch.zeros(1, DIM), table])


def test_what_a_state_likes_is_among_what_is_found() -> None:
    torch.manual_seed(0)
    centres, table = topics()
    index = ClusterIndex(ITEMS, DIM, every=10)
    state = centres[:1]
    found = index.nearest(state, table, 200)
    best = (state @ table[1:].T).topk(20, 1).indices.squeeze(0) + 1
    assert torch.isin(best, found).float().mean() >= 0.9
    assert 200 <= len(found) < ITEMS, "enough, and not everything"
    assert bool((found > 0).all()), "padding is no item"
    assert len(set(found.tolist())) == len(found)


def test_more_than_there_is_finds_everything() -> None:
    torch.manual_seed(0)
    centres, table = topics()
    found = ClusterIndex(ITEMS, DIM, every=10).nearest(centres, table, 10 * ITEMS)
    assert torch.equal(found, torch.arange(1, ITEMS + 1))


def test_it_is_rebuilt_only_now_and_then() -> None:
    torch.manual_seed(0)
    centres, table = topics()
    index = ClusterIndex(ITEMS, DIM, every=3)
    built = []
    for look in range(7):
        index.nearest(centres[:1], table + look, 10)
        built.append(index.centres.clone())
    changed = [not torch.equal(one, other) for one, other in pairwise(built)]
    assert changed == [False, False, True, False, False, True]


def test_an_index_goes_on_where_its_state_was_saved() -> None:
    torch.manual_seed(0)
    centres, table = topics()
    index, other = ClusterIndex(ITEMS, DIM, every=5), ClusterIndex(ITEMS, DIM, every=5)
    index.nearest(centres[:1], table, 10)
    other.load_state_dict(index.state_dict())
    moved = table.flip(0)
    assert torch.equal(index.nearest(centres[1:2], moved, 50), other.nearest(centres[1:2], moved, 50))


def test_a_catalogue_of_equal_items_is_no_trouble() -> None:
    torch.manual_seed(0)
    found = ClusterIndex(4, 2, every=1).nearest(torch.ones(3, 2), torch.zeros(5, 2), 2)
    assert set(found.tolist()) <= {1, 2, 3, 4}
    assert len(found) >= 2
