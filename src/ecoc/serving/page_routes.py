"""Routes of the page at `/`: its files, what it must know of the model, the sphere of items, and played sessions."""

from collections.abc import Awaitable, Callable
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, Response
from msgspec import Meta, Struct
from starlette.requests import Request

from ecoc.policies.base import RankBy
from ecoc.serving.document import operation
from ecoc.serving.engine import Served
from ecoc.serving.messages import (
    LIMITS,
    Decoder,
    HistoryEvent,
    ModelName,
    RecommendRequest,
    Text,
    Weight,
    model_name,
    to_json,
)
from ecoc.serving.play import MOST_USERS, Player, Playground, Session, default_weight
from ecoc.serving.sphere import Place, Point, Sphere
from ecoc.serving.state import ServerState

_SCRIPTS = ("dom.js", "page.js", "server.js", "session.js", "sphere.js")
_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    **{f"/{name}": (name, "text/javascript; charset=utf-8") for name in _SCRIPTS},
}
PAGE_PATHS = frozenset(_FILES)
"""The files of the page. They say nothing about the model, so they need no token."""


class PageInfo(Struct, frozen=True):
    """What the page must know before it asks anything. `w` is null without a critic."""

    model: ModelName
    method: str
    encoder: str
    items: int
    feedback: list[str]
    w: float | None
    has_sphere: bool
    play: Playground


class SphereAnswer(Struct, frozen=True):
    """The most popular items on the sphere; `share` is the part of the variance that two dimensions hold."""

    items: list[Place]
    total: int
    share: float
    model: ModelName


class ActionRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Asks where the action after a history lies, and where the given items lie."""

    history: Annotated[list[Text | HistoryEvent], Meta(max_length=LIMITS.history)] = []
    rank_by: RankBy | None = None
    w: Weight | None = None
    items: Annotated[list[Text], Meta(max_length=LIMITS.k)] = []


class ActionAnswer(Struct, frozen=True):
    """The action, null if no item of the history is known; `items` are those that the model knows.

    `cloned` is the action of the cloned policy, null too if the model has no critic.
    """

    action: Point | None
    cloned: Point | None
    items: list[Place]
    model: ModelName


class PlayRequest(Struct, forbid_unknown_fields=True, frozen=True):
    """Asks for sessions of one or more users. The same seed means the same users."""

    w: Weight | None = None
    users: Annotated[int, Meta(ge=1, le=MOST_USERS)] = 1
    seed: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


_read_action_request: Decoder[ActionRequest] = Decoder(ActionRequest)
_read_play_request: Decoder[PlayRequest] = Decoder(PlayRequest)


PAGE_BODIES: tuple[Any, ...] = (PageInfo, SphereAnswer, ActionRequest, ActionAnswer, PlayRequest, Session)


def add_page(app: FastAPI, state: ServerState) -> None:
    """Add the files of the page, and the routes that it asks beside those of every client."""
    for path, (name, kind) in _FILES.items():
        app.get(path, include_in_schema=False)(_file_route(name, kind))
    own = _OfModel(state)

    @app.get("/v1/page", **operation(None, PageInfo, 503))
    async def page() -> Response:
        """What the page must know: the model, its feedback, its weight w, and whether sessions can be played."""
        return await own.info()

    @app.get("/v1/sphere", **operation(None, SphereAnswer, 400, 503))
    async def sphere() -> Response:
        """Popular items on the unit sphere, in two dimensions."""
        return await own.items()

    @app.post("/v1/sphere", **operation(ActionRequest, ActionAnswer, 400, 408, 413, 415, 503))
    async def action(request: Request) -> Response:
        """The action after a history on the unit sphere, and where the given items lie."""
        return await own.action(_read_action_request(await request.scope["exchange"].body()))

    @app.post("/v1/play", **operation(PlayRequest, Session, 400, 408, 413, 415, 503))
    async def play(request: Request) -> Response:
        """Play sessions: the blend of policy and value beside the cloned policy, with the same users."""
        return await own.play(_read_play_request(await request.scope["exchange"].body()))


def _file_route(name: str, kind: str) -> Callable[[], Awaitable[Response]]:
    async def send() -> Response:
        return Response(_content(name), headers={"content-type": kind})

    return send


@cache
def _content(name: str) -> bytes:
    return (files("ecoc.serving") / "page" / name).read_bytes()


class _OfModel:
    """Routes that depend on the model. The sphere and the player are made anew when the model was exchanged."""

    def __init__(self, state: ServerState) -> None:
        self._state, self._data = state, state.settings.data
        self._sphere: Sphere | None = None
        self._player: Player | None = None

    async def info(self) -> Response:
        """What the page must know."""
        served = self._state.served

        def info() -> PageInfo:
            model = served.model
            return PageInfo(
                model_name(served),
                model.config.method_name,
                model.config.encoder_name,
                len(model.vocab),
                model.feedback,
                default_weight(model),
                model.policy.vectors() is not None,
                self._player_of(served).playground,
            )

        return _json(await self._state.beside(info))

    async def items(self) -> Response:
        """Popular items."""
        served = self._state.served
        return _json(await self._state.beside(lambda: self._items(served)))

    async def action(self, wanted: ActionRequest) -> Response:
        """The action after a history."""
        served = self._state.served
        return _json(await self._state.beside(lambda: self._action(served, wanted)))

    async def play(self, wanted: PlayRequest) -> Response:
        """Play sessions."""
        served = self._state.served

        def play() -> Session:
            return self._player_of(served).play(w=wanted.w, users=wanted.users, seed=wanted.seed)

        return _json(await self._state.beside(play))

    def _items(self, served: Served) -> SphereAnswer:
        sphere = self._sphere_of(served)
        return SphereAnswer(sphere.items(), sphere.total, round(sphere.share, 4), model_name(served))

    def _action(self, served: Served, wanted: ActionRequest) -> ActionAnswer:
        sphere = self._sphere_of(served)
        history = RecommendRequest(wanted.history).for_engine().history
        action = sphere.action(history, wanted.rank_by, wanted.w)
        cloned = sphere.action(history, "policy", None) if served.model.policy.has_critic else None
        return ActionAnswer(action, cloned, sphere.places(wanted.items), model_name(served))

    def _sphere_of(self, served: Served) -> Sphere:
        if self._sphere is None or self._sphere.served is not served:
            self._sphere = Sphere(served)
        return self._sphere

    def _player_of(self, served: Served) -> Player:
        if self._player is None or self._player.served is not served:
            self._player = Player(served, self._data, threads=self._state.settings.threads)
        return self._player


def _json(value: Any) -> Response:
    return Response(to_json(value), media_type="application/json")
