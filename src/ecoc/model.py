"""Model: a trained policy with outside item ids, ready to recommend. `load` opens it from a run folder."""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecoc.arguments import (
    StrPath,
    as_choice,
    as_count,
    as_flag,
    as_id,
    as_list,
    as_number,
    as_path,
    as_text,
    refusal,
)
from ecoc.batch import PAD, Dims, History
from ecoc.data.schema import ITEMS
from ecoc.data.sequences import Dataset, open_data
from ecoc.data.times import LATEST, in_seconds
from ecoc.data.vocab import ItemVocab
from ecoc.errors import ArtifactError, InputError
from ecoc.methods.build import build_method
from ecoc.methods.untrained import PopularPolicy
from ecoc.policies import ranking
from ecoc.policies.base import Policy, RankBy, TiedPolicy, check_finite, check_weights, load_weights
from ecoc.policies.counts import PolicyWithCounts, Transitions
from ecoc.policies.ranking import Query
from ecoc.result import as_pandas
from ecoc.runs.bundle import (
    BUNDLE,
    CRITIC,
    MATRIX,
    POLICY,
    TRANSITIONS,
    VERSION_DIGITS,
    Bundle,
    is_bundle,
    open_bundle,
)
from ecoc.runs.config import RunConfig
from ecoc.runs.folder import BEST, COUNTS, RESULT, Run
from ecoc.runs.onnx_encoder import OnnxEncoder
from ecoc.storage.checkpoint import load_checkpoint

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Event = str | tuple[str, str] | tuple[str, str | None, float]
"""An item of a history: its id; its id and feedback; or its id, its feedback or None, and its time in seconds."""

Runtime = Literal["torch", "onnx"]
"""What computes the encoder of a model."""

_ROWS = 1024  # histories answered at a time
_HISTORIES = "a list of histories, each a list of item ids, oldest first, such as [['a17', 'b3']]"
_ITEM_LIST = "a list of item ids, such as ['a17', 'b3']"


@dataclass(frozen=True)
class Recommendations:
    """Lists of item ids with scores, best first, one list per history. Unpacks to (items, scores).

    `unknown` holds the ids of each history that training never saw. `values` are the critic's long-term estimates of
    the listed items, in units of reward; None without a critic. `users` are the users asked for, if they were users.
    `unknown_feedback` holds the names of feedback in each history that training never saw; their items count.
    """

    items: list[list[str]]
    scores: list[list[float]]
    unknown: list[list[str]]
    values: list[list[float] | None] = field(default_factory=list)
    users: list[str] | None = None
    unknown_feedback: list[list[str]] = field(default_factory=list)

    def __iter__(self) -> Iterator[list[list[str]] | list[list[float]]]:
        return iter((self.items, self.scores))

    def __len__(self) -> int:
        return len(self.items)

    def to_table(self) -> "pa.Table":
        """One row per recommended item as an Arrow table: history (or user), rank, item, score, value."""
        import pyarrow as pa

        places = [place for place, items in enumerate(self.items) for _ in items]
        values: list[float | None] = []
        for items, estimates in zip(self.items, self.values, strict=True):
            values += [None] * len(items) if estimates is None else estimates
        key = (
            {"history": pa.array(places, pa.int64())}
            if self.users is None
            else {"user": pa.array([self.users[place] for place in places], pa.string())}
        )
        return pa.table(
            {
                **key,
                "rank": pa.array([rank for items in self.items for rank, _ in enumerate(items, 1)], pa.int64()),
                "item": pa.array([item for items in self.items for item in items], pa.string()),
                "score": pa.array([score for scores in self.scores for score in scores], pa.float64()),
                "value": pa.array(values, pa.float64()),
            }
        )

    def to_frame(self) -> "pd.DataFrame":
        """`to_table` as a pandas frame."""
        return as_pandas(self.to_table())


class Model:
    """Recommends items by their outside ids."""

    def __init__(  # noqa: PLR0913 - one parameter per part
        self,
        policy: Policy,
        vocab: ItemVocab,
        *,
        name: str,
        feedback: Sequence[str],
        config: RunConfig,
        run: Run | None = None,
        reward_unit: float = 1.0,
        version: str = "",
        bundle: Bundle | None = None,
    ) -> None:
        self.bundle = bundle
        self.reward_unit = reward_unit
        self.policy = policy.train(False)
        self.vocab, self.name, self.config, self.version, self._run = vocab, name, config, version, run
        self._feedback = {name: code + 1 for code, name in enumerate(feedback)}
        self.popular = PopularPolicy(policy.items, policy.length)
        self.popular.share = torch.from_numpy(vocab.popularity())

    def __repr__(self) -> str:
        return f"Model('{self.name}', {self.config.method_name} {self.config.encoder_name}, {len(self.vocab)} items)"

    @property
    def run(self) -> Run:
        """The run it was opened from; a model that was opened from a bundle has none."""
        if self._run is None:
            raise InputError(f"{self.name}: a bundle can only recommend; give the run that it was exported from")
        return self._run

    @property
    def data_path(self) -> str:
        """Folder of the dataset it was trained on, when it was trained."""
        data = self.run.result.data if self._run is not None else None
        if data is None:
            raise InputError(f"{self.name}: not known which dataset its users are in; pass --data")
        return data.path

    def ranked_by(self, mode: RankBy | None = None, *, w: float | None = None, m: int | None = None) -> "Model":
        """The same model with another ranking: by `policy`, `blend` with weight w of the value, or `rerank` of m."""
        if mode is not None:
            as_choice(mode, "mode", get_args(RankBy))
        view = copy(self)
        view.policy = self.policy.ranked_by(
            mode, w=None if w is None else as_number(w, "w"), m=None if m is None else as_count(m, "m", least=1)
        )
        return view

    def by(self, mode: RankBy | None = None, *, w: float | None = None, m: int | None = None) -> "Model":
        """Old name of `ranked_by`."""
        warnings.warn("Model.by is now Model.ranked_by; the old name ends in 0.3", DeprecationWarning, stacklevel=2)
        return self.ranked_by(mode, w=w, m=m)

    def called(self, name: str) -> "Model":
        """The same model under another name in tables."""
        view = copy(self)
        view.name = name
        return view

    def recommend(
        self,
        histories: Iterable[Iterable[Event]],
        k: int = 10,
        *,
        exclude_seen: bool = False,
        exclude: Iterable[str] = (),
        only: Iterable[str] | None = None,
        time: float | None = None,
    ) -> Recommendations:
        """The k best items to follow each history, oldest event first.

        A history is any sequence of item ids or of (item id, feedback) pairs: list, tuple, numpy array, pandas Series,
        generator. Items that training never saw are ignored and listed as unknown; an empty history is answered with
        popular items. `exclude_seen` leaves out the items of the history, `exclude` the given items; `only` restricts
        the answer to the given items. Each history is answered as if it were alone.

        Encoder hstu also reads times. An event with a time is (item id, feedback or None, seconds since 1970); `time`
        is that of the request, by default that of the last event. Without times it uses positions alone.
        """
        rows = [self.read(history) for history in as_list(histories, "histories", _HISTORIES)]
        return self._recommend(rows, k, exclude_seen=exclude_seen, exclude=exclude, only=only, time=time)

    def recommend_users(
        self,
        data: Dataset | StrPath,
        users: Iterable[str],
        k: int = 10,
        *,
        exclude_seen: bool = False,
        exclude: Iterable[str] = (),
        only: Iterable[str] | None = None,
        time: float | None = None,
    ) -> Recommendations:
        """The k best items for users of a prepared dataset, each by the latest of the user's sequences.

        `exclude_seen` leaves out the items of all sequences of the user. Times are those of the dataset, and `time` is
        that of the request, by default that of the user's last event. The rest is as in `recommend`.
        """
        dataset = data if isinstance(data, Dataset) else open_data(data)
        names = [as_id(user, "users") for user in as_list(users, "users", "a list of user ids")]
        rows = [self._read_user(dataset, user) for user in names]
        result = self._recommend(rows, k, exclude_seen=exclude_seen, exclude=exclude, only=only, time=time)
        return replace(result, users=names)

    def _recommend(
        self,
        queries: list["ReadHistory"],
        k: int,
        *,
        exclude_seen: bool,
        exclude: Iterable[str],
        only: Iterable[str] | None,
        time: float | None,
    ) -> Recommendations:
        if self.policy.training:  # or it would forget what it derived from its weights
            self.policy.train(False)
        if time is not None:
            queries = [replace(query, request_time=_as_seconds(time, "time")) for query in queries]
        k, exclude_seen = as_count(k, "k", least=1), as_flag(exclude_seen, "exclude_seen")
        banned = self.known(exclude, "exclude")
        allowed = None if only is None else torch.from_numpy(self.known(only, "only"))
        if allowed is not None and not len(allowed):
            raise InputError("only: none of these items is in the catalogue")
        result = Recommendations(
            [], [], [row.unknown for row in queries], unknown_feedback=[row.unknown_feedback for row in queries]
        )
        for first in range(0, len(queries), _ROWS):
            rows = queries[first : first + _ROWS]
            left_out = [np.concatenate([row.seen if exclude_seen else row.seen[:0], banned]) for row in rows]
            self._answer(rows, k, padded(left_out), allowed, result)
        return result

    def similar(self, items: Iterable[str], k: int = 10) -> Recommendations:
        """The k items whose unit vectors are nearest to each given one's, itself left out; unknown ones get no list."""
        with torch.inference_mode():
            unit = self.policy.unit_vectors()
        if unit is None:
            raise InputError(f"{self.name}: method {self.config.method_name} has no item vectors to compare")
        k = as_count(k, "k", least=1)
        wanted = [as_id(item, "items") for item in as_list(items, "items", _ITEM_LIST)]
        index = self.vocab.indices(wanted).astype(np.int64)
        with torch.inference_mode():
            nearness = _Nearness(unit)
            rows = torch.from_numpy(index)
            nearest, scores = nearness.topk(rows, k)
        result = Recommendations([], [], [[] if place else [item] for item, place in zip(wanted, index, strict=True)])
        known = (rows != PAD)[:, None]
        _add(result, self.vocab, nearest * known, scores, torch.full_like(scores, torch.nan))
        return result

    def _answer(
        self, rows: list["ReadHistory"], k: int, exclude: Tensor, only: Tensor | None, result: Recommendations
    ) -> None:
        """Answer a chunk: those with a history by the policy, the others by popularity."""
        is_known = np.array([len(row.items) > 0 for row in rows])
        width = min(k, self.policy.items if only is None else len(only))
        items, scores = torch.zeros(len(rows), width, dtype=torch.int64), torch.full((len(rows), width), -torch.inf)
        values = torch.full_like(scores, torch.nan)
        with torch.inference_mode():
            for policy, chosen in ((self.policy, is_known), (self.popular, ~is_known)):
                index = torch.from_numpy(np.flatnonzero(chosen))
                if len(index):
                    history = as_history([rows[i] for i in index.tolist()], self.policy.length)
                    query = policy.query(history)
                    items[index], scores[index] = policy.topk(query, k, exclude=exclude[index], only=only)
                    estimates = policy.values(query, items[index], history)
                    if estimates is not None:
                        values[index] = estimates * self.reward_unit
        _add(result, self.vocab, items, scores, values)

    def parse_history(self, text: str) -> list[Event]:
        """`a17,b3:buy` as events; what follows the last colon is feedback unless the whole is an item's id."""
        events: list[Event] = []
        for part in (piece.strip() for piece in as_text(text, "text").split(",")):
            item, _, given = part.rpartition(":")
            if item and part not in self.vocab and (given in self._feedback or item in self.vocab):
                events.append((item, given) if given else item)
            elif part:
                events.append(part)
        return events

    @property
    def feedback(self) -> list[str]:
        """Names of the feedback that training saw."""
        return list(self._feedback)

    def feedback_code(self, name: str) -> int:
        """What a history holds for a feedback; 0: a feedback that training never saw."""
        return self._feedback.get(name, 0)

    def read(self, history: object) -> "ReadHistory":
        """A history as `recommend` takes it, in indices. A feedback that training never saw counts as none."""
        if isinstance(history, Set):  # which item came last is what matters
            raise refusal("histories", _HISTORIES, history)
        items, feedback, times, strange = [], [], [], []
        for event in as_list(history, "histories", _HISTORIES):
            is_tuple = isinstance(event, tuple | list) and len(event) in (2, 3)
            item, given, time = (*event, None)[:3] if is_tuple else (event, None, None)
            items.append(as_id(item, "item of a history"))
            feedback.append(0 if given is None else self.feedback_code(as_text(given, "feedback")))
            if given is not None and not feedback[-1] and given not in strange:
                strange.append(given)
            times.append(0 if time is None else _as_seconds(time, "time of an event"))
        index = self.vocab.indices(items).astype(np.int64)
        is_known = index != PAD
        unknown = [item for item, known in zip(items, is_known, strict=True) if not known]
        return ReadHistory(
            index[is_known],
            np.array(feedback, np.int64)[is_known],
            np.array(times, np.int64)[is_known],
            unknown,
            index[is_known],
            times[-1] if times else 0,
            strange,
        )

    def _read_user(self, data: Dataset, user: str) -> "ReadHistory":
        sequences = data.user(user)
        latest = max(sequences, key=lambda sequence: int(sequence.times[-1]))
        seconds = [time or None for time in in_seconds(latest.times, data.manifest.time_unit).tolist()]
        query = self.read(zip(latest.items, latest.feedback, seconds, strict=True))
        seen = self.vocab.indices([item for sequence in sequences for item in sequence.items]).astype(np.int64)
        return replace(query, seen=np.unique(seen[seen != PAD]))

    def known(self, items: Iterable[str], name: str) -> NDArray[np.int64]:
        """Indices of the ids that are known, each once, in order."""
        ids = [as_id(item, name) for item in as_list(items, name, _ITEM_LIST)]
        index = self.vocab.indices(ids).astype(np.int64)
        return np.unique(index[index != PAD])


@dataclass(frozen=True)
class ReadHistory:
    """A history as indices, with the items that `exclude_seen` leaves out."""

    items: NDArray[np.int64]
    feedback: NDArray[np.int64]
    times: NDArray[np.int64]  # seconds; 0 unknown
    unknown: list[str]
    seen: NDArray[np.int64]
    request_time: int
    unknown_feedback: list[str] = field(default_factory=list)


class _Nearness:
    """Cosine between items, as a scorer whose queries are items."""

    def __init__(self, unit: Tensor) -> None:
        self.unit = unit
        self.items = len(unit) - 1

    def topk(self, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return ranking.topk(self, Query(self.unit[rows]), k, exclude=rows[:, None])

    def scores(self, query: Query, first: int, last: int) -> Tensor:
        return query.vector @ self.unit[first:last].T


def load(path: StrPath, *, runtime: Runtime = "torch") -> Model:
    """Open the model of a finished run or of a bundle. Runtime `onnx` encodes histories by onnxruntime."""
    folder = as_path(path, "path")
    uses_onnx = as_choice(runtime, "runtime", get_args(Runtime)) == "onnx"
    if is_bundle(folder):
        return _load_bundle(open_bundle(folder), uses_onnx=uses_onnx)
    if uses_onnx:
        raise InputError(f"{folder}: runtime onnx needs a bundle; write it with ecoc export --onnx")
    return _load_run(Run(folder))


def _load_run(run: Run) -> Model:
    config, result = run.config(), run.result
    vocab = ItemVocab.open(run.path / ITEMS, items=result.dims.items, sha256=result.items_sha256 or "")
    _check_feedback(result.feedback, result.dims, str(run.path / RESULT))
    best = load_checkpoint(run.checkpoints, BEST)
    if best.sha256 != result.weights_sha256:
        raise ArtifactError(f"{run.checkpoints / BEST}: other weights than the run ended with; train again")
    policy = _build(config, result.dims, best.tensors, str(run.checkpoints / BEST))
    if result.counts is not None and result.counts.weight:
        saved, where = load_checkpoint(run.checkpoints, COUNTS), str(run.checkpoints / COUNTS)
        if saved.sha256 != result.counts.sha256:
            raise ArtifactError(f"{where}: other counts than the run ended with; train again")
        policy = PolicyWithCounts(policy, Transitions.open(saved.tensors, policy.items, where), result.counts.weight)
    chosen = run.chosen_ranking()
    if chosen is not None and policy.has_critic:
        policy = policy.ranked_by("blend", w=chosen[1])
    return Model(
        policy,
        vocab,
        name=run.name,
        feedback=result.feedback,
        config=config,
        run=run,
        reward_unit=result.reward_unit,
        version=result.weights_sha256[:VERSION_DIGITS],
    )


def _load_bundle(bundle: Bundle, *, uses_onnx: bool) -> Model:
    record, where = bundle.record, str(bundle.path)
    try:
        config = RunConfig.build(record.config, where=str(bundle.path / BUNDLE))
    except InputError as error:
        raise ArtifactError(f"{error}; export it again") from None
    entry = record.files[ITEMS]
    vocab = ItemVocab.open(bundle.path / ITEMS, items=record.dims.items, sha256=entry.sha256)
    _check_feedback(record.feedback, record.dims, str(bundle.path / BUNDLE))
    weights, critic = bundle.tensors(POLICY), bundle.tensors(CRITIC)
    if twice := set(weights) & set(critic):
        raise ArtifactError(f"{bundle.path / CRITIC}: tensor '{min(twice)}' is in {POLICY} too; export it again")
    policy = _build(config, record.dims, weights | critic, where)
    finished = bundle.tensors(MATRIX)
    shapes = {name: tuple(tensor.shape) for name, tensor in finished.items()}
    if shapes != policy.finished_shapes() or any(tensor.dtype != torch.float32 for tensor in finished.values()):
        raise ArtifactError(f"{bundle.path / MATRIX}: its tensors do not fit the model; export it again")
    for name, tensor in finished.items():
        check_finite(name, tensor, str(bundle.path / MATRIX))
    if record.counts_weight:
        counts = Transitions.open(bundle.tensors(TRANSITIONS), policy.items, str(bundle.path / TRANSITIONS))
        policy = PolicyWithCounts(policy, counts, record.counts_weight)
    if record.ranking is not None and policy.has_critic:
        policy = policy.ranked_by("blend", w=record.ranking.w)
    model = Model(
        policy,
        vocab,
        name=record.name,
        feedback=record.feedback,
        config=config,
        reward_unit=record.reward_unit,
        version=bundle.version,
        bundle=bundle,
    )
    model.policy.adopt(finished)
    encoding = model.policy.without_counts
    if uses_onnx and isinstance(encoding, TiedPolicy):
        encoding.runtime = OnnxEncoder.of_bundle(bundle, encoding)
    elif uses_onnx:
        raise InputError(f"{bundle.path}: method {config.method_name} has no encoder, so runtime onnx cannot be used")
    return model


def _check_feedback(names: Sequence[str], dims: Dims, where: str) -> None:
    """Refuse more names of feedback than the encoder has codes for."""
    if len(names) > dims.feedback:
        raise ArtifactError(f"{where}: {len(names)} names of feedback, expected {dims.feedback}; make it again")


def _build(config: RunConfig, dims: Dims, tensors: Mapping[str, Tensor], where: str) -> Policy:
    """A policy with saved weights. Shapes are compared before memory is spent on what the settings ask for."""
    with torch.device("meta"):
        check_weights(build_method(config, dims).policy, tensors, where=where)
    with torch.random.fork_rng(devices=[]):
        policy: Policy = build_method(config, dims).policy
    load_weights(policy, tensors, where=where)
    return policy


def as_history(rows: list[ReadHistory], length: int) -> History:
    """The last `length` events of each row, for a policy."""
    history = History(padded([row.items[-length:] for row in rows]), padded([row.feedback[-length:] for row in rows]))
    times = [row.times[-length:] for row in rows]
    if not any(row.any() for row in times):
        return history
    requests = [np.append(known[1:], row.request_time) for known, row in zip(times, rows, strict=True)]
    return replace(history, times=padded(times), request_times=padded(requests))


def _as_seconds(time: object, name: str) -> int:
    """Whole seconds since 1970; 0 means unknown in a `History`, so second 0 becomes 1."""
    return math.floor(as_number(time, name, least=-LATEST, most=LATEST)) or 1


def padded(rows: list[NDArray[np.int64]]) -> Tensor:
    """Rows of different length as one tensor, PAD after the end of each."""
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
