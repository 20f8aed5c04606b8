import re

import numpy as np
import pytest

from ecoc.errors import InputError
from ecoc.world.market import Market, MarketConfig
from ecoc.world.names import SHELVES, category_names
from ecoc.world.worlds import WORLDS, parse_world


@pytest.mark.parametrize(
    ("kind", "items", "topics"), [("bait", 200, 10), ("satiation", 20_000, 25), ("bait", 20_000, 60)]
)
def test_titles_are_unique_and_readable(kind: str, items: int, topics: int) -> None:
    market = Market(MarketConfig.build({"kind": kind, "items": items, "topics": topics}))
    assert len(set(market.titles)) == items
    assert all(re.fullmatch(r"[A-Z][A-Za-z' ,:.0-9—-]{5,80}", title) for title in market.titles)
    assert len(set(market.categories)) == topics
    assert market.prices.min() >= 0.99


def test_small_catalogues_need_no_variants() -> None:
    titles = Market(MarketConfig()).titles
    assert not any("," in title or " no. " in title for title in titles)


def test_tempting_items_can_be_told_by_their_title() -> None:
    for kind, mark in (("bait", "Flash deal: "), ("satiation", " — mega bundle")):
        market = Market(MarketConfig.build({"kind": kind, "items": 300}))
        assert np.array_equal([mark in title for title in market.titles], market.tempting)
        assert 0.3 < market.tempting.mean() < 0.6


def test_an_item_sits_on_the_shelf_of_its_category() -> None:
    market = Market(MarketConfig())
    things = {name: things for name, _, _, things in SHELVES}
    for title, category in zip(market.titles, market.categories, strict=True):
        assert any(title.endswith(thing) for thing in things[category])


def test_things_belong_to_one_category_only() -> None:
    things = [thing for *_, things in SHELVES for thing in things]
    assert len(set(things)) == len(things)
    assert len(set(category_names(80))) == 80


def test_named_worlds_have_the_promised_sizes() -> None:
    for name in WORLDS:
        config = parse_world(name)
        events = config.sessions * config.steps
        size = name.split(":")[-1]
        assert events == {"small": 20_000, "large": 5_000_000}.get(size, 200_000), name
    assert parse_world("world:large") == parse_world("world:bait:large")
    assert parse_world("world:satiation").items == 2000
    assert (parse_world("world:default").items, parse_world("world:default").topics) == (200, 10)


def test_sizes_and_seed_can_be_given() -> None:
    config = parse_world("world:satiation", seed=7, events=10_000_000, items=60)
    assert (config.seed, config.sessions, config.items, config.topics) == (7, 500_000, 60, 7)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("world:bate", "world:bait"), ("world:satiation:smal", "world:satiation:small"), ("World:Large", "world:large")],
)
def test_unknown_worlds_get_a_hint(name: str, hint: str) -> None:
    with pytest.raises(InputError, match=f"did you mean '{hint}'"):
        parse_world(name)


def test_impossible_sizes_are_named() -> None:
    with pytest.raises(InputError, match="events: 5 is less than one session"):
        parse_world("world:bait", events=5)
    with pytest.raises(InputError, match="steps: 20 is more than the 10 items"):
        parse_world("world:bait", items=10)
    with pytest.raises(InputError, match="seed"):
        parse_world("world:bait", seed=-1)
