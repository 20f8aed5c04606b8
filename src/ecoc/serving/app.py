"""The routes of the server and their OpenAPI document."""

from importlib.metadata import version
from typing import Annotated, Any

from fastapi import FastAPI, Query, Response
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.routing import Match, Route

from ecoc.serving.document import REASONS, describe_bodies, operation
from ecoc.serving.engine import Served
from ecoc.serving.gate import Exchange, Gate, Receive, Scope, Send
from ecoc.serving.log import LineLog
from ecoc.serving.messages import (
    LIMITS,
    CatalogueAnswer,
    CatalogueItem,
    Live,
    ModelMetadata,
    Ready,
    RecommendAnswer,
    RecommendRequest,
    ReloadAnswer,
    ReloadRequest,
    RequestError,
    SimilarAnswer,
    SimilarItem,
    SimilarList,
    SimilarRequest,
    TensorMetadata,
    model_name,
    read_recommend_requests,
    read_reload_request,
    read_similar_request,
    to_json,
)
from ecoc.serving.metrics import CONTENT_TYPE
from ecoc.serving.page_routes import PAGE_BODIES, PAGE_PATHS, add_page
from ecoc.serving.state import ServerState

RECOMMEND = "/v1/recommend"
_BODIES: tuple[Any, ...] = (
    RecommendRequest,
    RecommendAnswer,
    SimilarRequest,
    SimilarAnswer,
    CatalogueAnswer,
    ReloadRequest,
    ReloadAnswer,
    Live,
    Ready,
    ModelMetadata,
    *PAGE_BODIES,
)


def build_app(state: ServerState, log: LineLog | None = None) -> Gate:
    """The application that a server runs."""
    app = FastAPI(
        title="ecoc",
        version=version("ecoc"),
        description="Recommendations that optimise long-term reward.",
        docs_url=None,  # these pages load scripts from other hosts
        redoc_url=None,
        openapi_url="/openapi.json",
        redirect_slashes=False,
    )
    _add_recommending(app, state)
    _add_model_routes(app, state)
    _add_open_inference(app, state)
    add_page(app, state)
    app.middleware_stack = AsyncExitStackMiddleware(app.router)  # without those that answer errors: the gate does
    describe_bodies(app, _BODIES, has_token=state.settings.token is not None)
    return Gate(state, {RECOMMEND: _Recommend(state)}, _Framework(app), open_paths=PAGE_PATHS, log=log)


class _Recommend:
    """`POST /v1/recommend`, without a framework in between: this is the route that has to be fast."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._logs_histories = state.settings.log_histories

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope["exchange"]
        if scope["method"] != "POST":
            raise RequestError(405, "method_not_allowed", REASONS[405], allow="POST")
        given = read_recommend_requests(await exchange.body())
        requests = given if isinstance(given, list) else [given]
        if self._logs_histories:
            exchange.history = [request.history for request in requests]
        answers = [
            RecommendAnswer.of(answer)
            for answer in await self._state.answer([request.for_engine() for request in requests])
        ]
        await exchange.send_json(to_json(answers if isinstance(given, list) else answers[0]))


class _Framework:
    """All other routes. The gate learns which one answered, by its pattern, and why a request was refused."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except HTTPException as error:
            code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
            message = REASONS.get(error.status_code, "The request is wrong")
            allow = self._methods(scope) if error.status_code == 405 else None
            raise RequestError(error.status_code, code, message, allow=allow) from None
        except RequestValidationError as error:
            problems = [f"{'.'.join(map(str, problem['loc'][1:]))}: {problem['msg']}" for problem in error.errors()]
            raise RequestError(400, "invalid_request", "; ".join(problems)[:300]) from None
        finally:
            route = scope.get("route")
            if route is not None:
                scope["exchange"].route = route.path

    def _methods(self, scope: Scope) -> str:
        """All methods that the routes of a path take; the framework names those of the first one."""
        routes = [route for route in self._app.routes if isinstance(route, Route)]
        matching = [route.methods or set() for route in routes if route.matches(scope)[0] is not Match.NONE]
        return ", ".join(sorted(set().union(*matching)))


def _json(value: Any) -> Response:
    return Response(to_json(value), media_type="application/json")


def _add_recommending(app: FastAPI, state: ServerState) -> None:
    @app.post(RECOMMEND, **operation(RecommendRequest, RecommendAnswer, 400, 405, 408, 413, 415, 503, many=True))
    async def recommend() -> Response:
        """Recommend items to follow a history; several requests may be sent as a list."""
        raise NotImplementedError  # the gate answers this route; this entry describes it

    @app.post("/v1/similar", **operation(SimilarRequest, SimilarAnswer, 400, 408, 413, 415, 503))
    async def similar(request: HttpRequest) -> Response:
        """List the items whose unit vectors are nearest to those of the given items."""
        wanted = read_similar_request(await request.scope["exchange"].body())
        served = state.served
        return _json(await state.beside(lambda: _similar(served, wanted)))

    @app.get("/v1/items", **operation(None, CatalogueAnswer, 400, 503))
    async def items(
        query: Annotated[str, Query(max_length=LIMITS.text, description="Text in an id or a title.")] = "",
        limit: Annotated[int, Query(ge=1, le=LIMITS.search_results)] = 10,
    ) -> Response:
        """Search the catalogue by id and title; without a text, list popular items."""
        served = state.served

        def search() -> CatalogueAnswer:
            places, total = state.catalogue_of(served).search(query, limit)
            listed = [CatalogueItem(served.ids[place], served.titles[place]) for place in places]
            return CatalogueAnswer(listed, total, model_name(served))

        return _json(await state.beside(search))


def _similar(served: Served, wanted: SimilarRequest) -> SimilarAnswer:
    vocab = served.model.vocab
    lists = served.model.similar(wanted.items, wanted.k)
    results, unknown = [], []
    for item, near, scores in zip(wanted.items, lists.items, lists.scores, strict=True):
        if vocab.find(item) is None:
            unknown.append(item)
            continue
        titles = [served.titles[place - 1] for place in vocab.indices(near)]
        results.append(SimilarList(item, list(map(SimilarItem, near, titles, scores))))
    return SimilarAnswer(results, unknown, model_name(served))


def _add_model_routes(app: FastAPI, state: ServerState) -> None:
    @app.post("/admin/reload", **operation(ReloadRequest, ReloadAnswer, 400, 403, 408, 409, 413, 415, 422, 503))
    async def reload(request: HttpRequest) -> Response:
        """Load another model without losing a request. Needs the token; off if the server has none."""
        wanted = read_reload_request(await request.scope["exchange"].body())
        current, previous = await state.reload(wanted.path)
        return _json(ReloadAnswer(current, previous))

    @app.get("/metrics", **operation(None, str))
    async def metrics() -> Response:
        """Figures of the server in the text format of Prometheus."""
        return Response(state.metrics.text(), headers={"content-type": CONTENT_TYPE})


def _add_open_inference(app: FastAPI, state: ServerState) -> None:
    @app.get("/v2/health/live", **operation(None, Live, is_open=True))
    async def live() -> Response:
        """Whether the server runs."""
        return _json(Live())

    @app.get("/v2/health/ready", **operation(None, Ready, 503, is_open=True))
    async def ready() -> Response:
        """Whether requests should be sent here: not before the model is loaded, not once the server stops."""
        if not state.is_ready:
            reason = "stopping" if state.is_stopping else "not_ready"
            raise RequestError(503, reason, "The server does not take requests now", retry_after=1)
        return _json(Ready())

    @app.get("/v2/models/{name}", **operation(None, ModelMetadata, 404, 503))
    async def model(name: str) -> Response:
        """What is served."""
        served = state.served
        if name != served.name:
            raise RequestError(404, "not_found", "There is no model of this name")
        return _json(_metadata(served))


def _metadata(served: Served) -> ModelMetadata:
    model = served.model
    return ModelMetadata(
        name=served.name,
        versions=[served.version],
        platform="ecoc",
        inputs=[TensorMetadata("history", "BYTES", [-1])],
        outputs=[TensorMetadata("items", "BYTES", [-1]), TensorMetadata("scores", "FP32", [-1])],
        method=model.config.method_name,
        encoder=model.config.encoder_name,
        items=len(model.vocab),
        has_critic=model.policy.has_critic,
        ranking=model.policy.ranking_mode,
        feedback=model.feedback,
    )
