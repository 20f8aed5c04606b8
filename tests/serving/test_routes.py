"""Every route of the server, asked over HTTP: what it answers, by which model, and with which headers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_case import Server, serving

import ecoc
from ecoc.model import Model

TOKEN = "routes-token"
SECURITY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
Body = dict[str, Any]


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Server]:
    with serving(models / "ecoc-bundle", token=TOKEN) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        yield client


@pytest.fixture(scope="module")
def model(models: Path) -> Model:
    return ecoc.load(models / "ecoc-bundle")


def ids(model: Model) -> list[str]:
    return model.vocab.all_ids()


def recommend(client: httpx.Client, **body: Any) -> Body:
    response = client.post("/v1/recommend", json=body)
    assert response.status_code == 200, response.text
    answer: Body = response.json()
    return answer


def listed(answer: Body) -> list[str]:
    return [item["item"] for item in answer["items"]]


def named(model: Model) -> Body:
    return {"name": model.name, "version": model.version}


MODES: list[Body] = [
    {},
    {"rank_by": "policy"},
    {"rank_by": "blend"},
    {"rank_by": "blend", "w": 0.0},
    {"rank_by": "blend", "w": 7.5},
    {"w": 2.0},
    {"rank_by": "rerank"},
    {"rank_by": "rerank", "m": 7},
    {"rank_by": "cosine"},
]


@pytest.mark.parametrize("mode", MODES, ids=json.dumps)
def test_a_recommendation_is_that_of_the_model_in_every_ranking_mode(
    client: httpx.Client, model: Model, mode: Body
) -> None:
    history, view = ids(model)[3:9], model.ranked_by(mode.get("rank_by"), w=mode.get("w"), m=mode.get("m"))
    answer = recommend(client, history=history, k=12, exclude_seen=False, **mode)
    expected = view.recommend([history], 12)
    assert listed(answer) == expected.items[0]
    assert [item["score"] for item in answer["items"]] == pytest.approx(expected.scores[0], rel=1e-5)
    assert [item["value"] for item in answer["items"]] == pytest.approx(expected.values[0], rel=1e-4)
    assert [item["title"] for item in answer["items"]] == [model.vocab.item(item).title for item in listed(answer)]
    assert (answer["unknown"], answer["unknown_feedback"], answer["model"]) == ([], [], named(model))


def test_filters_hold(client: httpx.Client, model: Model) -> None:
    history = ids(model)[:4]
    everything = recommend(client, history=history, k=1000, exclude_seen=False)
    assert sorted(listed(everything)) == sorted(ids(model))
    rest = recommend(client, history=history, k=1000)
    assert listed(rest) == [item for item in listed(everything) if item not in history]
    banned = listed(rest)[:5]
    assert listed(recommend(client, history=history, k=1000, exclude=banned)) == listed(rest)[5:]
    only = [listed(rest)[place] for place in (150, 20, 60)]
    assert listed(recommend(client, history=history, only=[*only, "nowhere"])) == [only[1], only[2], only[0]]


def test_feedback_and_time_of_events_are_read(client: httpx.Client, model: Model) -> None:
    first, second = ids(model)[5:7]
    events = [{"item": first, "feedback": "buy", "time": 1.5e9}, {"item": second, "feedback": None, "time": None}]
    answer = recommend(client, history=events, exclude_seen=False)
    expected = model.recommend([[(first, "buy", 1.5e9), second]])
    assert listed(answer) == expected.items[0]


def test_unknown_items_and_feedback_are_ignored_and_listed(client: httpx.Client, model: Model) -> None:
    item = ids(model)[8]
    events = ["nowhere", {"item": item, "feedback": "teleported"}, {"item": "lost\u0000", "feedback": "buy"}]
    answer = recommend(client, history=events)
    assert listed(answer) == listed(recommend(client, history=[item]))
    assert (answer["unknown"], answer["unknown_feedback"]) == (["nowhere", "lost\u0000"], ["teleported"])


@pytest.mark.parametrize("history", [[], ["nowhere"]])
def test_an_empty_history_is_answered_by_popular_items(client: httpx.Client, model: Model, history: list[str]) -> None:
    answer = recommend(client, history=history, k=5)
    assert listed(answer) == model.recommend([[]], 5).items[0]
    assert [item["value"] for item in answer["items"]] == [None] * 5


def test_a_list_of_requests_is_answered_in_order(client: httpx.Client, model: Model) -> None:
    wanted: list[Body] = [{"history": ids(model)[place : place + 3], "k": place + 1} for place in range(5)] + MODES
    response = client.post("/v1/recommend", json=wanted)
    assert response.status_code == 200
    assert [listed(answer) for answer in response.json()] == [listed(recommend(client, **body)) for body in wanted]


def test_similar_items_are_the_nearest(client: httpx.Client, model: Model) -> None:
    wanted = ids(model)[:2]
    response = client.post("/v1/similar", json={"items": [wanted[0], "nowhere", wanted[1]], "k": 4})
    answer, expected = response.json(), model.similar(wanted, 4)
    assert [result["item"] for result in answer["results"]] == wanted
    for result, items, scores in zip(answer["results"], expected.items, expected.scores, strict=True):
        assert listed(result) == items
        assert [item["score"] for item in result["items"]] == pytest.approx(scores, rel=1e-5)
        assert [item["title"] for item in result["items"]] == [model.vocab.item(item).title for item in items]
    assert (answer["unknown"], answer["model"]) == (["nowhere"], named(model))


def test_the_catalogue_is_searched_by_id_and_title(client: httpx.Client, model: Model) -> None:
    item = model.vocab.item(ids(model)[17])
    assert item.title is not None
    by_id = client.get("/v1/items", params={"query": item.id.upper()}).json()
    assert (by_id["items"][0], by_id["model"]) == ({"item": item.id, "title": item.title}, named(model))
    word = item.title.split()[-1]
    by_title = client.get("/v1/items", params={"query": word, "limit": 100}).json()
    matching = [other for other in ids(model) if word.lower() in (model.vocab.item(other).title or "").lower()]
    assert sorted(listed(by_title)) == sorted(matching)
    assert by_title["total"] == len(matching)
    popular = client.get("/v1/items", params={"limit": 7}).json()
    assert (listed(popular), popular["total"]) == (model.recommend([[]], 7).items[0], len(ids(model)))
    assert client.get("/v1/items", params={"query": "no such thing"}).json()["items"] == []


def test_probes_and_metadata(client: httpx.Client, model: Model) -> None:
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    metadata = client.get(f"/v2/models/{model.name}").json()
    assert (metadata["name"], metadata["versions"]) == (model.name, [model.version])
    assert (metadata["method"], metadata["encoder"], metadata["items"]) == ("ecoc", "sasrec", len(ids(model)))
    assert (metadata["has_critic"], metadata["feedback"]) == (True, model.feedback)
    refused = client.get("/v2/models/another")
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "not_found")


def test_the_model_is_exchanged_and_every_answer_names_its_own(
    client: httpx.Client, models: Path, model: Model
) -> None:
    other, history = ecoc.load(models / "supervised-bundle"), ids(model)[:3]
    exchanged = client.post("/admin/reload", json={"path": "supervised-bundle"})
    assert exchanged.json() == {"model": named(other), "previous": named(model)}
    answer = recommend(client, history=history, exclude_seen=False)
    assert (answer["model"], listed(answer)) == (named(other), other.recommend([history]).items[0])
    assert {item["value"] for item in answer["items"]} == {None}
    assert client.get("/v1/items").json()["model"] == named(other)
    assert client.post("/v1/similar", json={"items": history}).json()["model"] == named(other)
    again = client.post("/admin/reload", json={})
    assert again.json() == {"model": named(other), "previous": named(other)}
    assert client.post("/admin/reload", json={"path": "ecoc-bundle"}).json()["model"] == named(model)
    assert recommend(client, history=history)["model"] == named(model)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("nowhere", "load_failed"),
        ("data", "load_failed"),
        ("..", "path_refused"),
        ("/etc", "path_refused"),
        ("ecoc-bundle/../../x", "path_refused"),
        ("a\u0000b", "path_refused"),
    ],
)
def test_a_model_that_cannot_be_loaded_leaves_the_old_one(
    client: httpx.Client, model: Model, path: str, code: str
) -> None:
    refused = client.post("/admin/reload", json={"path": path})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, code)
    assert recommend(client)["model"] == named(model)


ASKED = [
    ("GET", "/", "text/html; charset=utf-8", 200),
    ("GET", "/page.js", "text/javascript; charset=utf-8", 200),
    ("GET", "/page.css", "text/css; charset=utf-8", 200),
    ("POST", "/v1/recommend", "application/json", 200),
    ("GET", "/v1/items", "application/json", 200),
    ("GET", "/v1/page", "application/json", 200),
    ("GET", "/v1/sphere", "application/json", 200),
    ("POST", "/v1/sphere", "application/json", 200),
    ("POST", "/v1/play", "application/json", 200),
    ("GET", "/v2/health/live", "application/json", 200),
    ("GET", "/v2/health/ready", "application/json", 200),
    ("GET", "/v2/models/ecoc", "application/json", 200),
    ("GET", "/metrics", "text/plain; version=0.0.4; charset=utf-8", 200),
    ("GET", "/openapi.json", "application/json", 200),
    ("POST", "/v1/similar", "application/json", 400),
    ("GET", "/v1/items?limit=0", "application/json", 400),
    ("GET", "/v1/recommend", "application/json", 405),
    ("DELETE", "/v1/items", "application/json", 405),
    ("PUT", "/", "application/json", 405),
    ("GET", "/nowhere", "application/json", 404),
    ("GET", "/v1/recommend/", "application/json", 404),
    ("GET", "/docs", "application/json", 404),
    ("GET", "/page/../page.js%00", "application/json", 404),
]


@pytest.mark.parametrize(("method", "path", "kind", "status"), ASKED)
def test_type_and_security_headers_are_on_every_answer(
    client: httpx.Client, method: str, path: str, kind: str, status: int
) -> None:
    response = client.request(method, path, json={} if method == "POST" else None)
    assert (response.status_code, response.headers["content-type"]) == (status, kind)
    assert {name: response.headers.get(name) for name in SECURITY} == SECURITY
    assert "server" not in response.headers
    if status == 405:
        assert response.headers["allow"]
    if status != 200:
        error = response.json()["error"]
        assert error["code"]
        assert error["message"]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"GET /v1/items HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 401),
        (b"GET / HTTP/1.1\r\nHost: elsewhere\r\nConnection: close\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://elsewhere\r\nConnection: close\r\n\r\n", 403),
        (b"POST /v2/health/live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n", 413),
    ],
)
def test_refusals_before_any_route_carry_them_too(server: Server, data: bytes, status: int) -> None:
    head, _, body = server.exchange(data).partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    assert lines[0].startswith(f"HTTP/1.1 {status} ")
    assert {name: headers.get(name) for name in SECURITY} == SECURITY
    assert headers["content-type"] == "application/json"
    assert set(json.loads(body)["error"]) == {"code", "message"}


def test_models_without_vectors_or_critic_say_so(client: httpx.Client) -> None:
    assert client.post("/admin/reload", json={"path": "markov-bundle"}).status_code == 200
    refused = client.post("/v1/similar", json={"items": ["i0001"]})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")
    refused = client.post("/v1/recommend", json={"rank_by": "blend", "w": 1})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_request")
    assert len(recommend(client, history=["i0001"])["items"]) == 10
    assert client.post("/admin/reload", json={"path": "ecoc-bundle"}).status_code == 200
