"""Model: a trained policy with outside item ids, ready to recommend. `load` opens it from a run folder."""

import math
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecoc.batch import PAD, Dims, History
from ecoc.data.schema import ITEMS
from ecoc.data.vocab import ItemVocab
from ecoc.errors import ArtifactError, InputError, did_you_mean
from ecoc.methods.build import build_method
from ecoc.methods.untrained import PopularPolicy
from ecoc.policies import ranking
from ecoc.policies.base import Policy, RankBy, load_weights
from ecoc.runs.config import RunConfig
from ecoc.runs.folder import BEST, Run
from ecoc.storage.atomic import file_sha256
from ecoc.storage.checkpoint import load_checkpoint

Event = str | tuple[str, str]
"""An item of a history: its id, or its id and the feedback it got."""

_ROWS = 1024  # histories answered at a time


@dataclass(frozen=True)
class Recommendations:
    """Lists of item ids with scores, best first, and what was asked but is not known. Unpacks to (items, scores).

    `values` are the critic's long-term estimates of the listed items, in units of reward; none without a critic.
    """

    items: list[list[str]]
    scores: list[list[float]]
    unknown: list[list[str]]
    values: list[list[float] | None] = field(default_factory=list)

    def __iter__(self) -> Iterator[list[list[str]] | list[list[float]]]:
        return iter((self.items, self.scores))


class Model:
    """Recommends items by their outside ids."""

    def __init__(
        self,
        policy: Policy,
        vocab: ItemVocab,
        *,
        name: str,
        feedback: Sequence[str],
        config: RunConfig,
        run: Run,
        reward_unit: float = 1.0,
    ) -> None:
        self._reward_unit = reward_unit
        self.policy = policy.train(False)
        self.vocab, self.name, self.config, self.run = vocab, name, config, run
        self._feedback = {name: code + 1 for code, name in enumerate(feedback)}
        self._popular = PopularPolicy(policy.items, policy.length)
        self._popular.share = torch.from_numpy(vocab.popularity())

    def __repr__(self) -> str:
        return f"Model('{self.name}', {self.config.method_name} {self.config.encoder_name}, {len(self.vocab)} items)"

    def ranked_by(self, rank_by: RankBy | None = None, *, w: float | None = None, m: int | None = None) -> "Model":
        """The same model acting in another way: by `policy`, `blend` with weight w of the value, or `rerank` of m."""
        view = copy(self)
        view.policy = self.policy.ranked_by(rank_by, w=w, m=m)
        return view

    def called(self, name: str) -> "Model":
        """The same model under another name in tables."""
        view = copy(self)
        view.name = name
        return view

    def recommend(
        self,
        histories: Iterable[Sequence[Event]],
        k: int = 10,
        *,
        exclude_seen: bool = False,
        exclude: Iterable[str] = (),
        only: Iterable[str] | None = None,
    ) -> Recommendations:
        """The k best items to follow each history, oldest event first.

        Items of a history that training never saw are ignored and listed as unknown; an empty history is answered with
        what is popular. `exclude_seen` leaves out a history's own items, `exclude` the given ones, `only` all others.
        A batch answers as its histories would one by one.
        """
        if self.policy.training:  # or it would forget what it derived from its weights
            self.policy.train(False)
        asked = [self._read(history) for history in _lists(histories)]
        banned = self._known(exclude)
        allowed = None if only is None else torch.from_numpy(self._known(only))
        _check_k(k)
        result = Recommendations([], [], [row.unknown for row in asked])
        for first in range(0, len(asked), _ROWS):
            rows = asked[first : first + _ROWS]
            left_out = [np.concatenate([row.items if exclude_seen else row.items[:0], banned]) for row in rows]
            self._answer(rows, k, _padded(left_out), allowed, result)
        return result

    def similar(self, items: Iterable[str], k: int = 10) -> Recommendations:
        """The k items whose unit vectors are nearest to each given one's, itself left out; unknown ones get no list."""
        vectors = self.policy.vectors()
        if vectors is None:
            raise InputError(f"{self.name}: method {self.config.method_name} has no item vectors to compare")
        _check_k(k)
        wanted = _listed(items)
        index = self.vocab.indices([_text(item) for item in wanted]).astype(np.int64)
        with torch.inference_mode():
            nearness = _Nearness(torch.nn.functional.normalize(vectors, dim=1))
            rows = torch.from_numpy(index)
            found, scores = nearness.topk(rows, k)
        result = Recommendations(
            [], [], [[] if place else [_text(item)] for item, place in zip(wanted, index, strict=True)]
        )
        known = (rows != PAD)[:, None]
        _add(result, self.vocab, found * known, scores, torch.full_like(scores, torch.nan))
        return result

    def _answer(
        self, rows: list["_Asked"], k: int, exclude: Tensor, only: Tensor | None, result: Recommendations
    ) -> None:
        """Answer a chunk: those with a history by the policy, the others by popularity."""
        is_known = np.array([len(row.items) > 0 for row in rows])
        width = min(k, self.policy.items if only is None else len(only))
        items, scores = torch.zeros(len(rows), width, dtype=torch.int64), torch.full((len(rows), width), -torch.inf)
        values = torch.full_like(scores, torch.nan)
        with torch.inference_mode():
            for policy, chosen in ((self.policy, is_known), (self._popular, ~is_known)):
                index = torch.from_numpy(np.flatnonzero(chosen))
                if len(index):
                    history = _history([rows[i] for i in index.tolist()], self.policy.length)
                    query = policy.query(history)
                    items[index], scores[index] = policy.topk(query, k, exclude=exclude[index], only=only)
                    found = policy.values(query, items[index], history)
                    if found is not None:
                        values[index] = found * self._reward_unit
        _add(result, self.vocab, items, scores, values)

    def parse_history(self, text: str) -> list[Event]:
        """`a17,b3:buy` as events; what follows the last colon is feedback if it is one's name."""
        events: list[Event] = []
        for part in (piece.strip() for piece in text.split(",")):
            item, _, given = part.rpartition(":")
            if item and given in self._feedback and part not in self.vocab:
                events.append((item, given))
            elif part:
                events.append(part)
        return events

    def feedback_code(self, name: str) -> int:
        """What a history holds for a feedback; 0: a feedback that training never saw."""
        return self._feedback.get(name, 0)

    def _read(self, history: Sequence[Event]) -> "_Asked":
        items, feedback = [], []
        for event in history:
            item, given = event if isinstance(event, tuple | list) and len(event) == 2 else (event, None)
            items.append(_text(item))
            if given is not None and not (isinstance(given, str) and given in self._feedback):
                raise InputError(f"feedback {given!r:.60} is not known; {did_you_mean(str(given), self._feedback)}")
            feedback.append(0 if given is None else self._feedback[given])
        index = self.vocab.indices(items).astype(np.int64)
        is_known = index != PAD
        unknown = [item for item, known in zip(items, is_known, strict=True) if not known]
        return _Asked(index[is_known], np.array(feedback, np.int64)[is_known], unknown)

    def _known(self, items: Iterable[str]) -> NDArray[np.int64]:
        """Indices of the ids that are known, each once, in order."""
        found = self.vocab.indices([_text(item) for item in _listed(items)]).astype(np.int64)
        return np.unique(found[found != PAD])


@dataclass(frozen=True)
class _Asked:
    """A history as indices."""

    items: NDArray[np.int64]
    feedback: NDArray[np.int64]
    unknown: list[str]


class _Nearness:
    """Cosine between items, as a scorer whose queries are items."""

    def __init__(self, unit: Tensor) -> None:
        self.unit = unit
        self.items = len(unit) - 1

    def topk(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return ranking.topk(self, self.unit[rows], k, exclude=rows[:, None])

    def scores(self, query: Tensor, first: int, last: int) -> Tensor:
        return query @ self.unit[first:last].T


def load(path: str | PathLike[str]) -> Model:
    """Open the model of a finished run."""
    run = Run(Path(path))
    config, result = run.config(), run.result()
    try:
        dims = Dims(**{key: int(result["dims"][key]) for key in ("items", "users", "feedback")})
        feedback = [str(name) for name in result["feedback"]]
        unit = float(result.get("reward_unit", 1.0))
    except (KeyError, TypeError, ValueError):
        raise ArtifactError(f"{run.path}: result.json does not say what it was trained on; train again") from None
    if not (run.path / ITEMS).is_file() or file_sha256(run.path / ITEMS) != result.get("items_sha256"):
        raise ArtifactError(f"{run.path / ITEMS}: not the items it was trained on; train again")
    vocab = ItemVocab.open(run.path / ITEMS)
    if len(vocab) != dims.items:
        raise ArtifactError(f"{run.path / ITEMS}: {len(vocab)} items, the run was trained on {dims.items}; train again")
    with torch.random.fork_rng(devices=[]):
        policy = build_method(config, dims).policy
    best = load_checkpoint(run.checkpoints, BEST)
    if best.sha256 != result.get("weights_sha256"):
        raise ArtifactError(f"{run.checkpoints / BEST}: other weights than the run ended with; train again")
    load_weights(policy, best.tensors, where=str(run.checkpoints / BEST))
    chosen = run.chosen_ranking()
    if chosen is not None and policy.has_critic:
        policy = policy.ranked_by("blend", w=chosen[1])
    return Model(policy, vocab, name=run.name, feedback=feedback, config=config, run=run, reward_unit=unit)


def _history(rows: list[_Asked], length: int) -> History:
    return History(_padded([row.items[-length:] for row in rows]), _padded([row.feedback[-length:] for row in rows]))


def _padded(rows: list[NDArray[np.int64]]) -> Tensor:
    result = torch.zeros(len(rows), max((len(row) for row in rows), default=0), dtype=torch.int64)
    for place, row in enumerate(rows):
        result[place, : len(row)] = torch.from_numpy(row)
    return result


def _add(result: Recommendations, vocab: ItemVocab, items: Tensor, scores: Tensor, values: Tensor) -> None:
    """Append lists, without the padding at their ends; a list without a value has none."""
    counts = (items != PAD).sum(1).tolist()
    names = iter(vocab.ids(items[items != PAD].numpy()))
    for row, worth, count in zip(scores.tolist(), values.tolist(), counts, strict=True):
        result.items.append([next(names) for _ in range(count)])
        result.scores.append(row[:count])
        result.values.append(None if any(math.isnan(value) for value in worth[:count]) else worth[:count])


def _lists(histories: Iterable[Sequence[Event]]) -> list[list[Event]]:
    return [_listed(history) for history in _listed(histories)]


def _listed(values: Iterable[Any]) -> list[Any]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InputError(f"expected a list of item ids, such as ['a17', 'b3'], or of histories; found {values!r:.80}")
    return list(values)


def _text(item: object) -> str:
    if isinstance(item, bool) or not isinstance(item, str | int | np.integer):
        raise InputError(f"an item id is text, or (id, feedback) in a history; found {item!r:.80}")
    return str(item)


def _check_k(k: int) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k is the number of items to list, 1 or more; found {k!r:.40}")
