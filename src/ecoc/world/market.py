"""The built-in marketplace: every probability is known, so the true reward of a policy can be measured.

There is one simulator with two kinds. In `bait`, some items look better than they are, and each one shown reduces the
user's trust. In `satiation`, heavy items get more clicks now and fewer for the rest of the session. In both, a topic
shown often and a repeated item get fewer clicks, and interest moves towards clicked items. For interest z and item i
with vector v_i:

    a_i  = affinity * z.v_i
    u_i  = a_i + appeal_i - boredom * b_topic(i) - repeat * rec_i + click_offset
    P(click)                  = g * exp(-wear * sum(b)) * sigma(u_i)
    P(buy | click)            = sigma(a_i + buy_offset - log price_i)
    P(favourite | click only) = sigma(a_i + favourite_offset)

and after item i was shown

    z   <- unit(z + drift * v_i)  if clicked
    b   <- boredom_decay * b,  then b_topic(i) += load_i
    g   <- (1 - trust_loss) * g  if i is bait,  else g + trust_gain * (1 - g)
    rec <- repeat_decay * rec,  then rec_i = 1

Trust g stays 1 in `satiation` (no bait) and `wear` is 0 in `bait`. The rest of the model: topic centres are
uniform on the sphere, an item is unit(centre + spread * noise), a user unit(centre + wander * noise) with
noise ~ N(0, 1/dim) per coordinate; topics shrink with their rank (size ~ rank^-1/2) and users choose a topic by size;
appeal_i = quality_std * N + bait_appeal [bait] + load_appeal * (load_i - 1/2); log price_i = price_std * N, relative to
the usual price of its category.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator, model_validator

from ecoc.config import Config
from ecoc.world.names import category_names, item_titles, usual_prices

Floats = NDArray[np.float32]
Ints = NDArray[np.int32]
Bools = NDArray[np.bool_]

FEEDBACK = ("ignore", "click", "favourite", "buy")
REWARDS = (0.0, 1.0, 2.0, 3.0)

# Vectors lie on a grid of 1/2048: products of two coordinates are then multiples of 2^-22 and their sum, below 2, is
# exact in float32. Any order of summation gives the same bits, hence any BLAS and any number of threads.
_GRID = np.float32(2048)

# OpenBLAS computes products with fewer multiplications than this in one thread; more threads would only spin.
_BLAS_ALONE = 1 << 18

_PRESETS: dict[str, dict[str, Any]] = {
    "bait": {},
    "satiation": {
        "items": 2000,
        "topics": 25,
        "dim": 10,
        "spread": 0.6,
        "quality_std": 0.4,
        "bait_share": 0.0,
        "load_low": 0.05,
        "load_high": 1.0,
        "load_appeal": 0.8,
        "boredom": 0.8,
        "boredom_decay": 0.9,
        "wear": 0.18,
        "drift": 0.2,
        "trust_start": 1.0,
    },
}


class MarketConfig(Config):
    """Settings of a world. Fields that are not given take the values of its kind."""

    kind: Literal["bait", "satiation"] = Field(
        "bait", description="what lowers later rewards of a greedy policy: lost trust (bait) or satiation"
    )
    seed: int = Field(
        0, ge=0, description="another seed gives another catalogue, other users and another log of the same kind"
    )
    items: int = Field(200, ge=2, le=1_000_000, description="catalogue size")
    topics: int = Field(10, ge=1, description="number of topics, shown as categories")
    sessions: int = Field(10_000, ge=1, le=100_000_000, description="number of logged sessions; each has its own user")
    steps: int = Field(20, ge=1, le=1000, description="items shown per session")
    dim: int = Field(8, ge=2, le=64, description="dimension of interest and item vectors")

    spread: float = Field(0.4, ge=0, description="distance of items from the centre of their topic")
    wander: float = Field(0.5, ge=0, description="distance of a new user from the centre of a topic")
    quality_std: float = Field(0.3, ge=0, le=3, description="standard deviation of the appeal of items")
    price_std: float = Field(0.5, ge=0, le=3, description="standard deviation of the log price within a category")
    bait_share: float = Field(0.35, ge=0, le=1, description="share of bait in the catalogue")
    bait_appeal: float = Field(1.0, ge=0, le=5, description="additional appeal of bait")
    load_low: float = Field(0.5, ge=0, description="smallest load of an item on its topic")
    load_high: float = Field(0.5, ge=0, le=5, description="largest load of an item on its topic")
    load_appeal: float = Field(
        0.0, ge=0, le=5, description="additional appeal of an item with load 1 over one with load 0"
    )
    heavy_above: float = Field(
        0.5, ge=0, description="items with a larger load are called heavy, in a world without bait"
    )

    affinity: float = Field(4.0, ge=0, le=15, description="weight of the match between interest and item")
    click_offset: float = Field(-1.5, ge=-10, le=10, description="constant in the click probability")
    favourite_offset: float = Field(-2.0, ge=-10, le=10, description="constant in the favourite probability")
    buy_offset: float = Field(-2.5, ge=-10, le=10, description="constant in the purchase probability")
    drift: float = Field(0.15, ge=0, le=10, description="how far interest moves towards a clicked item")
    boredom: float = Field(1.0, ge=0, le=10, description="weight of the load of a topic")
    boredom_decay: float = Field(0.7, ge=0, lt=1, description="share of that load that remains after a step")
    wear: float = Field(
        0.0, ge=0, le=10, description="how strongly the load of all topics lowers every click probability"
    )
    repeat: float = Field(3.0, ge=0, le=10, description="penalty of an item just shown")
    repeat_decay: float = Field(0.9, ge=0, lt=1, description="share of that penalty that remains after a step")
    trust_start: float = Field(0.8, gt=0, le=1, description="trust of a new user")
    trust_loss: float = Field(0.3, ge=0, lt=1, description="share of trust lost when bait is shown")
    trust_gain: float = Field(
        0.15, ge=0, le=1, description="share of missing trust regained when an item that is no bait is shown"
    )

    greed: float = Field(
        0.75, ge=0, le=1, description="share of logged decisions drawn from the softmax; the rest is uniform"
    )
    temperature: float = Field(
        0.15, ge=0.05, description="temperature of the softmax over expected immediate rewards in the logging policy"
    )

    @model_validator(mode="before")
    @classmethod
    def _fill_from_kind(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        preset = _PRESETS.get(str(values.get("kind", "bait")), {})
        return {**preset, **values}

    @field_validator("topics", "steps")
    @classmethod
    def _fits_the_catalogue(cls, value: int, info: ValidationInfo) -> int:
        if value > info.data.get("items", value):
            raise ValueError(
                f"{value} is more than the {info.data['items']} items; there must be one item per topic and step"
            )
        return value

    @field_validator("load_high")
    @classmethod
    def _not_below_load_low(cls, value: float, info: ValidationInfo) -> float:
        if value < info.data.get("load_low", value):
            raise ValueError(f"{value} is below load_low, {info.data['load_low']}")
        return value


@dataclass(frozen=True)
class MarketState:
    """The hidden state of n users who are at the same step of their sessions."""

    interest: Floats  # [n, d], unit up to the grid
    load: Floats  # [n, topics]
    trust: Floats  # [n]
    shown: Ints  # [n, t], oldest first

    def __len__(self) -> int:
        return len(self.trust)

    def take(self, rows: NDArray[np.intp]) -> "MarketState":
        """Select the users at `rows`, which may repeat."""
        return MarketState(self.interest[rows], self.load[rows], self.trust[rows], self.shown[rows])


class Market:
    """A catalogue and the dynamics of users. Immutable: `step` returns the next state."""

    def __init__(self, config: MarketConfig) -> None:
        self.config = config
        rng = np.random.default_rng([config.seed, 0])
        sizes = np.arange(1, config.topics + 1) ** -0.5
        self.topic_share = sizes / sizes.sum()  # [topics]
        self.topic = _spread_over(self.topic_share, config.items, rng)  # [items]
        self.centre = _unit(rng.standard_normal((config.topics, config.dim), dtype=np.float32))  # [topics, d]
        self.vector = _on_grid(_near(self.centre[self.topic], config.spread, rng))  # [items, d]
        self.bait = rng.permutation(config.items) < round(config.bait_share * config.items)  # [items]
        self.load = rng.uniform(config.load_low, config.load_high, config.items).astype(np.float32)  # [items]
        self.log_price = (config.price_std * rng.standard_normal(config.items)).astype(np.float32)  # [items]
        quality = config.quality_std * rng.standard_normal(config.items)
        appeal = quality + config.bait_appeal * self.bait + config.load_appeal * (self.load - 0.5)
        self.appeal = appeal.astype(np.float32)  # [items]
        # Utilities add, so odds multiply: one exponential per user and item serves all three probabilities.
        self._click_odds = np.exp(self.appeal + np.float32(config.click_offset))
        self._buy_odds = np.exp(np.float32(config.buy_offset) - self.log_price)
        self._favourite_odds = np.exp(np.float32(config.favourite_offset))
        self._columns = np.ascontiguousarray(self.vector.T)  # [d, items]

    @cached_property
    def tempting(self) -> Bools:
        """Items that a greedy policy shows too often: bait, or heavy items if there is no bait. [items]."""
        return self.bait if self.config.kind == "bait" else self.load > self.config.heavy_above

    @cached_property
    def categories(self) -> list[str]:
        """Readable category of each item."""
        names = category_names(self.config.topics)
        return [names[topic] for topic in self.topic]

    @cached_property
    def titles(self) -> list[str]:
        """Readable, unique title of each item; the title shows whether the item is tempting."""
        rng = np.random.default_rng([self.config.seed, 1])
        mark = "Flash deal: {}" if self.config.kind == "bait" else "{} — mega bundle"
        plain = item_titles(self.topic, rng)
        return [mark.format(title) if tempts else title for title, tempts in zip(plain, self.tempting, strict=True)]

    @cached_property
    def prices(self) -> NDArray[np.float64]:
        """Price of each item, ending in .99. [items]."""
        return np.floor(usual_prices(self.config.topics)[self.topic] * np.exp(self.log_price)) + 0.99

    @property
    def chunk(self) -> int:
        """Users computed at once, to bound memory; another value would give another log."""
        return int(np.clip((1 << 18) // self.config.items, 16, 1024))

    def start(self, n: int, rng: np.random.Generator) -> MarketState:
        """New users at the beginning of their sessions."""
        topic = rng.choice(self.config.topics, size=n, p=self.topic_share)
        return MarketState(
            interest=_on_grid(_near(self.centre[topic], self.config.wander, rng)),
            load=np.zeros((n, self.config.topics), np.float32),
            trust=np.full(n, self.config.trust_start, np.float32),
            shown=np.zeros((n, 0), np.int32),
        )

    def workspace(self, n: int) -> Floats:
        """Memory for `behave` on up to n users. Reuse it: new pages cost as much time as the arithmetic."""
        return np.empty((3, n, self.config.items), np.float32)

    def click_chance(self, state: MarketState) -> Floats:
        """P(click) of every item. [n, items]."""
        affinity, click, spare = self.workspace(len(state))
        self._fill_affinity(state, affinity)
        return self._fill_click(state, affinity, click, spare)

    def expected_reward(self, state: MarketState) -> Floats:
        """Exact expected reward of showing each item now. [n, items]."""
        return self._expected_in(state, self.workspace(len(state)))

    def expected_reward_of(self, state: MarketState, items: Ints) -> Floats:
        """Exact expected reward of showing one item to each user. [n]."""
        click, buy, favourite = self._chances(state, items)
        return click * (1 + favourite + buy * (2 - favourite))

    def step(
        self, state: MarketState, items: Ints, rng: np.random.Generator
    ) -> tuple[MarketState, NDArray[np.int8], Floats]:
        """Show one item to each user: next state, feedback codes [n] and rewards [n]."""
        feedback = self.respond(state, items, rng.random(len(state), dtype=np.float32))
        rewards = np.asarray(REWARDS, np.float32)[feedback]
        return self.advance(state, items, feedback > 0), feedback, rewards

    def respond(self, state: MarketState, items: Ints, luck: Floats) -> NDArray[np.int8]:
        """Feedback codes for uniform draws `luck` [n]; a larger draw gives a better feedback."""
        click, buy, favourite = self._chances(state, items)
        at_least = (click, click * (buy + (1 - buy) * favourite), click * buy)
        codes: NDArray[np.int8] = np.sum([luck >= 1 - chance for chance in at_least], axis=0, dtype=np.int8)
        return codes

    def advance(self, state: MarketState, items: Ints, clicked: Bools) -> MarketState:
        """The state after `items` were shown, and clicked or not."""
        config = self.config
        moved = _on_grid(_unit(state.interest + np.float32(config.drift) * self.vector[items]))  # [n, d]
        load = state.load * np.float32(config.boredom_decay)  # [n, topics]
        load[np.arange(len(state)), self.topic[items]] += self.load[items]
        lost = state.trust * np.float32(1 - config.trust_loss)
        regained = state.trust + np.float32(config.trust_gain) * (1 - state.trust)
        return MarketState(
            interest=np.where(clicked[:, None], moved, state.interest),
            load=load,
            trust=np.where(self.bait[items], lost, regained),
            shown=np.column_stack([state.shown, items.astype(np.int32)]),
        )

    def behave(self, state: MarketState, rng: np.random.Generator, work: Floats | None = None) -> Ints:
        """Items shown by the logging policy: from a softmax of expected immediate reward, else uniform. [n]."""
        items = rng.integers(self.config.items, size=len(state), dtype=np.int32)
        greedy = np.flatnonzero(rng.random(len(state), dtype=np.float32) < self.config.greed)
        work = self.workspace(len(greedy)) if work is None else work
        weights = self._expected_in(state.take(greedy), work)
        weights *= np.float32(1 / self.config.temperature)
        np.exp(weights, out=weights)  # at most exp(3 / .05): no overflow
        items[greedy] = _pick(weights, rng.random(len(greedy), dtype=np.float32))
        return items

    def behaviour(self, state: MarketState) -> NDArray[np.float64]:
        """Probability that the logging policy shows each item. [n, items]."""
        weights = np.exp(self.expected_reward(state).astype(np.float64) / self.config.temperature)
        greedy: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
        return self.config.greed * greedy + (1 - self.config.greed) / self.config.items

    def _expected_in(self, state: MarketState, work: Floats) -> Floats:
        """P(click) times the mean reward of a click, 3 - P(no buy) * (1 + P(no favourite)). [n, items]."""
        affinity, click, spare = work[:, : len(state)]
        self._fill_affinity(state, affinity)
        reward = self._fill_click(state, affinity, click, spare)
        np.multiply(affinity, self._buy_odds, out=spare)
        spare += 1
        affinity *= self._favourite_odds
        affinity += 1
        np.divide(1, affinity, out=affinity)
        affinity += 1
        np.divide(affinity, spare, out=spare)
        np.subtract(3, spare, out=spare)
        reward *= spare
        return reward

    def _fill_affinity(self, state: MarketState, affinity: Floats) -> None:
        rows = max(8, _BLAS_ALONE // self._columns.size)
        for first in range(0, len(state), rows):
            block = slice(first, first + rows)
            np.matmul(state.interest[block], self._columns, out=affinity[block])  # [rows, items]
        affinity *= np.float32(self.config.affinity)
        np.exp(affinity, out=affinity)

    def _fill_click(self, state: MarketState, affinity: Floats, click: Floats, spare: Floats) -> Floats:
        bored = np.exp(np.float32(-self.config.boredom) * state.load)  # [n, topics]
        np.take(bored, self.topic, axis=1, out=click, mode="clip")  # "clip" writes straight to `out`
        click *= affinity
        click *= self._click_odds
        if state.shown.size:
            # An item shown twice is written twice: the later, stronger penalty stays.
            tired = np.take_along_axis(click, state.shown, axis=1) * np.exp(-self._fatigue(state))  # [n, t]
            np.put_along_axis(click, state.shown, tired, axis=1)
        np.add(click, 1, out=spare)
        click /= spare
        click *= self._willing(state)[:, None]
        return click

    def _chances(self, state: MarketState, items: Ints) -> tuple[Floats, Floats, Floats]:
        """P(click), P(buy | click) and P(favourite | click, no buy) of one item per user, [n] each."""
        rows = np.arange(len(state))
        dots = np.sum(state.interest * self.vector[items], axis=1)
        affinity = np.exp(np.float32(self.config.affinity) * dots)
        tired = np.where(state.shown == items[:, None], self._fatigue(state), 0).max(axis=1, initial=0)
        bored = np.float32(self.config.boredom) * state.load[rows, self.topic[items]]
        odds = affinity * self._click_odds[items] * np.exp(-bored - tired)
        buy_odds = affinity * self._buy_odds[items]
        favourite_odds = affinity * self._favourite_odds
        click = self._willing(state) * odds / (odds + 1)
        return click, buy_odds / (buy_odds + 1), favourite_odds / (favourite_odds + 1)

    def _willing(self, state: MarketState) -> Floats:
        willing: Floats = state.trust * np.exp(np.float32(-self.config.wear) * state.load.sum(axis=1))
        return willing

    def _fatigue(self, state: MarketState) -> Floats:
        """Penalty repeat * rec of the items shown, oldest first. [t]."""
        age = np.arange(state.shown.shape[1] - 1, -1, -1)
        return (self.config.repeat * self.config.repeat_decay**age).astype(np.float32)


def _unit(vectors: Floats) -> Floats:
    unit: Floats = vectors / np.sqrt(np.sum(vectors * vectors, axis=-1, keepdims=True))
    return unit


def _on_grid(vectors: Floats) -> Floats:
    snapped: Floats = np.rint(vectors * _GRID) / _GRID
    return snapped


def _near(centres: Floats, spread: float, rng: np.random.Generator) -> Floats:
    noise = rng.standard_normal(centres.shape, dtype=np.float32)
    return _unit(centres + np.float32(spread / centres.shape[1] ** 0.5) * noise)


def _spread_over(shares: NDArray[np.float64], count: int, rng: np.random.Generator) -> Ints:
    """A topic for each of `count` items: at least one item per topic, the rest by share, in random order."""
    edges = np.cumsum(shares)
    rest = np.searchsorted(edges[:-1], (np.arange(count - len(shares)) + 0.5) / max(1, count - len(shares)))
    return rng.permutation(np.concatenate([np.arange(len(shares)), rest])).astype(np.int32)


def _pick(weights: Floats, luck: Floats) -> NDArray[np.intp]:
    """Sample one column per row in proportion to the weights: first a block of columns, then a column of the block.

    The running sums over blocks and within one block cost a fraction of the running sum over all columns.
    """
    width, last = 16, weights.shape[1] - 1
    blocks = np.cumsum(np.add.reduceat(weights, np.arange(0, last + 1, width), axis=1), axis=1)  # [n, items / width]
    aim = luck * blocks[:, -1]
    block = np.minimum(np.sum(blocks <= aim[:, None], axis=1), blocks.shape[1] - 1)
    before = np.where(block > 0, blocks[np.arange(len(aim)), block - 1], 0)
    columns = block[:, None] * width + np.arange(width)  # [n, width]
    inside = np.cumsum(np.take_along_axis(weights, np.minimum(columns, last), axis=1), axis=1)
    offset = np.sum(inside <= (aim - before)[:, None], axis=1)
    picked: NDArray[np.intp] = np.minimum(columns[:, 0] + np.minimum(offset, width - 1), last)
    return picked
