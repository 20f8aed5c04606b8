"""What goes over the wire, as types: bodies of requests and of answers, and how they become JSON and back.

One declaration is the check of a request and the schema in the OpenAPI document. Unknown fields, duplicate fields,
numbers that are not finite and values of another type are refused with a message that names the place.
"""

import json
from collections.abc import Sequence
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from ecoc.data.times import LATEST
from ecoc.errors import EcocError
from ecoc.model import Event
from ecoc.policies.base import RankBy
from ecoc.policies.value_policy import LARGEST_W
from ecoc.serving.engine import Answer, Request, Served
from ecoc.serving.settings import Limits

LIMITS = Limits()

Text = Annotated[str, Meta(max_length=LIMITS.text)]
Weight = Annotated[float, Meta(ge=0, le=LARGEST_W, description="blend: weight of the long-term value.")]
K = Annotated[int, Meta(ge=1, le=LIMITS.k, description="Number of items to list.")]


class RequestError(EcocError):
    """A request is refused: status, a short code for programs, a message for people, and what headers say."""

    def __init__(
        self, status: int, code: str, message: str, *, retry_after: int | None = None, allow: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.retry_after, self.allow = retry_after, allow


class HistoryEvent(Struct, forbid_unknown_fields=True, frozen=True):
    """An item of a history with what is known about the event."""

    item: Text
    feedback: Text | None = None
    time: Annotated[float, Meta(ge=-LATEST, le=LATEST, description="Seconds since 1970.")] | None = None


class RecommendRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Asks for the best items to follow a history."""

    history: Annotated[
        list[Text | HistoryEvent], Meta(max_length=LIMITS.history, description="Events, oldest first.")
    ] = []
    k: K = 10
    exclude_seen: Annotated[bool, Meta(description="Leave out the items of the history.")] = True
    exclude: Annotated[list[Text], Meta(max_length=LIMITS.exclude, description="Items to leave out.")] = []
    only: Annotated[list[Text], Meta(max_length=LIMITS.only, description="List these items only.")] | None = None
    rank_by: Annotated[RankBy, Meta(description="Ranking mode; without it, the model's own.")] | None = None
    w: Weight | None = None
    m: Annotated[int, Meta(ge=1, le=LIMITS.k, description="rerank: items of the policy to order by value.")] | None = (
        None
    )

    def for_engine(self) -> Request:
        """The same request as the engine takes it."""
        events: list[Event] = [
            event if isinstance(event, str) else _as_event(event.item, event.feedback, event.time)
            for event in self.history
        ]
        return Request(events, self.k, self.exclude_seen, self.exclude, self.only, self.rank_by, self.w, self.m)


def _as_event(item: str, feedback: str | None, time: float | None) -> Event:
    if time is not None:
        return (item, feedback, time)
    return item if feedback is None else (item, feedback)


class ListedItem(Struct, frozen=True):
    """An item of a list. `value` is the critic's estimate of the long-term reward; null without a critic."""

    item: str
    title: str | None
    score: float
    value: float | None


class ModelName(Struct, frozen=True):
    """Which model answered."""

    name: str
    version: str


class RecommendAnswer(Struct, frozen=True):
    """The best items first; `unknown` are items of the history that training never saw."""

    items: list[ListedItem]
    unknown: list[str]
    unknown_feedback: list[str]
    model: ModelName

    @classmethod
    def of(cls, answer: Answer) -> "RecommendAnswer":
        """The engine's answer."""
        values: Sequence[float | None] = answer.values if answer.values is not None else [None] * len(answer.items)
        listed = list(map(ListedItem, answer.items, answer.titles, answer.scores, values))
        return cls(listed, answer.unknown, answer.unknown_feedback, model_name(answer.served))


def model_name(served: Served) -> ModelName:
    """Name and version of a model."""
    return ModelName(served.name, served.version)


class SimilarRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Asks for the items whose unit vectors are nearest to those of the given ones."""

    items: Annotated[list[Text], Meta(min_length=1, max_length=LIMITS.similar)]
    k: K = 10


class SimilarItem(Struct, frozen=True):
    """A near item; `score` is the cosine."""

    item: str
    title: str | None
    score: float


class SimilarList(Struct, frozen=True):
    """The items nearest to one."""

    item: str
    items: list[SimilarItem]


class SimilarAnswer(Struct, frozen=True):
    """One list per known item; `unknown` are the others."""

    results: list[SimilarList]
    unknown: list[str]
    model: ModelName


class CatalogueItem(Struct, frozen=True):
    """An item of the catalogue."""

    item: str
    title: str | None


class CatalogueAnswer(Struct, frozen=True):
    """Items that a search found, popular ones first; `total` counts all that match."""

    items: list[CatalogueItem]
    total: int
    model: ModelName


class ReloadRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Asks for another model; without a path the served one is opened again."""

    path: Annotated[str, Meta(min_length=1, max_length=LIMITS.text)] | None = None


class ReloadAnswer(Struct, frozen=True):
    """The model that answers from now on."""

    model: ModelName
    previous: ModelName


class Live(Struct, frozen=True):
    """The server runs."""

    live: Literal[True] = True


class Ready(Struct, frozen=True):
    """The server has a model and accepts requests."""

    ready: Literal[True] = True


class TensorMetadata(Struct, frozen=True):
    """An input or output in the words of the open inference protocol."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(Struct, frozen=True):
    """What is served, in the words of the open inference protocol, and what requests may use."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]
    method: str
    encoder: str
    items: int
    has_critic: bool
    ranking: str
    feedback: list[str]


class ErrorDetail(Struct, frozen=True):
    """What was wrong: a word for programs, a line for people."""

    code: str
    message: str


class ErrorAnswer(Struct, frozen=True):
    """Body of every answer that is not a success."""

    error: ErrorDetail


T = TypeVar("T")


class Decoder(Generic[T]):
    """Reads bodies of one type."""

    def __init__(self, kind: Any) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def __call__(self, body: bytes) -> T:
        """The body as a value, or a `RequestError` that says what is wrong with it."""
        try:
            value = self._decoder.decode(body)
            json.loads(body, object_pairs_hook=_without_duplicates)  # its shape is known to be shallow by now
        except msgspec.ValidationError as error:
            raise RequestError(400, "invalid_request", _one_line(error)) from None
        except _DuplicateError as error:
            raise RequestError(400, "invalid_request", f"Object contains the field `{error}` twice") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
            raise RequestError(400, "invalid_json", "The body is not valid JSON in UTF-8") from None
        return value


class _DuplicateError(Exception):
    pass


def _without_duplicates(pairs: list[tuple[str, Any]]) -> None:
    if len(pairs) != len(dict(pairs)):
        names = [name for name, _ in pairs]
        raise _DuplicateError(next(name for name in names if names.count(name) > 1))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


read_recommend_requests: Decoder[RecommendRequest | list[RecommendRequest]] = Decoder(
    RecommendRequest | Annotated[list[RecommendRequest], Meta(min_length=1, max_length=LIMITS.list_length)]
)
read_similar_request: Decoder[SimilarRequest] = Decoder(SimilarRequest)
read_reload_request: Decoder[ReloadRequest] = Decoder(ReloadRequest)

to_json = msgspec.json.Encoder().encode


def error_body(code: str, message: str) -> bytes:
    """The JSON of a refusal."""
    return to_json(ErrorAnswer(ErrorDetail(code, message)))
