"""Metrics tell the truth: after a known mix of requests every counter has the number that was sent."""

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from server_case import Server, serving

JSON = {"Content-Type": "application/json"}
Key = tuple[str, str]  # route, status


@pytest.fixture(scope="module", params=[(), ("--workers", "2")], ids=["one process", "two workers"])
def server(request: pytest.FixtureRequest, models: Path) -> Iterator[Server]:
    with serving(models / "ecoc-bundle", "--most-waiting", "4", *request.param, token="t") as server:
        yield server


def scrape(server: Server) -> dict[str, float]:
    with server.client(headers={"Authorization": "Bearer t"}) as client:
        text = client.get("/metrics").text
    return {name: float(value) for name, value in (row.rsplit(" ", 1) for row in text.splitlines() if row[0] != "#")}


def requests_of(figures: dict[str, float]) -> Counter[Key]:
    """The counter of requests, without those for the metrics themselves."""
    counts: Counter[Key] = Counter()
    for name, value in figures.items():
        if name.startswith("ecoc_requests_total{"):
            labels = dict(part.split("=") for part in name[len("ecoc_requests_total{") : -1].split(","))
            key = labels["route"].strip('"'), labels["status"].strip('"')
            if key[0] != "/metrics":
                counts[key] = int(value)
    return counts


def mix(rng: random.Random) -> list[tuple[Key, str, str, bytes | None, dict[str, str]]]:
    """What to send, with the route and the status that it must be counted under."""
    post: list[tuple[int, Key, str, bytes, dict[str, str]]] = [
        (580, ("/v1/recommend", "200"), "/v1/recommend", b'{"history": ["i0001"], "k": 2}', {}),
        (40, ("/v1/recommend", "200"), "/v1/recommend", b'[{"k": 1}, {"k": 2}]', {}),
        (60, ("/v1/recommend", "400"), "/v1/recommend", b'{"k": 0}', {}),
        (20, ("/v1/recommend", "400"), "/v1/recommend", b'{"only": ["nowhere"]}', {}),
        (20, ("/v1/recommend", "413"), "/v1/recommend", b" " * 1_000_001, {}),
        (20, ("/v1/recommend", "415"), "/v1/recommend", b"{}", {"Content-Type": "text/plain"}),
        (20, ("/v1/recommend", "401"), "/v1/recommend", b"{}", {"Authorization": "Bearer wrong"}),
        (20, ("/v1/recommend", "503"), "/v1/recommend", json.dumps([{}] * 5).encode(), {}),  # only 4 may wait
        (20, ("/v1/similar", "200"), "/v1/similar", b'{"items": ["i0001"]}', {}),
        (20, ("/v1/similar", "400"), "/v1/similar", b'{"items": []}', {}),
        (5, ("/admin/reload", "422"), "/admin/reload", b'{"path": "nowhere"}', {}),
    ]
    get: list[tuple[int, Key, str, dict[str, str]]] = [
        (30, ("/v1/items", "200"), "/v1/items?query=a", {}),
        (10, ("/v1/items", "400"), "/v1/items?limit=0", {}),
        (20, ("/v2/health/live", "200"), "/v2/health/live", {}),
        (10, ("/v2/models/{name}", "200"), "/v2/models/ecoc", {}),
        (20, ("/v2/models/{name}", "404"), "/v2/models/random", {}),
        (10, ("/v1/recommend", "405"), "/v1/recommend", {}),
        (10, ("/v1/similar", "405"), "/v1/similar", {}),
        (20, ("other", "400"), "/v1/items", {"Host": "elsewhere"}),
        (5, ("other", "401"), "/v1/items", {"Authorization": ""}),
        (40, ("other", "404"), "/random", {}),
    ]
    sent: list[tuple[Key, str, str, bytes | None, dict[str, str]]] = []
    for count, key, path, body, headers in post:
        sent += [(key, "POST", path, body, {**JSON, **headers})] * count
    for count, key, path, headers in get:
        sent += [(key, "GET", path.replace("random", f"{rng.random()}"), None, headers) for _ in range(count)]
    rng.shuffle(sent)
    return sent


def test_counters_match_exactly_after_a_known_mix_of_1000_requests(server: Server) -> None:
    before, expected = scrape(server), Counter[Key]()
    sent = mix(random.Random(5))
    assert len(sent) == 1000
    clients = [server.client(headers={"Authorization": "Bearer t"}) for _ in range(4)]  # spread over the workers
    for number, (key, method, path, body, headers) in enumerate(sent):
        response = clients[number % 4].request(method, path, content=body, headers=headers)
        assert str(response.status_code) == key[1]
        expected[key] += 1
    for client in clients:
        client.close()
    for _ in range(10):  # no request to any route: refused by the protocol
        server.exchange(b"nonsense\r\n\r\n")
        expected["other", "400"] += 1
    for _ in range(5):  # the client goes away in the middle of its body
        with server.connect() as end:
            head = "POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer t\r\n"
            end.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{{".encode())
            time.sleep(0.05)
        expected["/v1/recommend", "499"] += 1
    for _ in range(5):  # a body that is broken in the middle is one request
        head = "POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer t\r\n"
        server.exchange(f"{head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n".encode())
        expected["/v1/recommend", "400"] += 1
    time.sleep(0.2)  # the server notices the clients that went away

    after = scrape(server)
    counted = requests_of(after) - requests_of(before)
    assert counted == expected
    assert counted.total() == 1020
    per_route: Counter[str] = Counter()
    for (route, _), count in expected.items():
        per_route[route] += count
    for route, count in per_route.items():
        name = f'ecoc_request_seconds_count{{route="{route}"}}'
        assert after[name] - before.get(name, 0) == count
        last = f'ecoc_request_seconds_bucket{{le="+Inf",route="{route}"}}'
        assert after[last] == after[name]
    assert after['ecoc_shed_total{reason="queue"}'] == 20
    assert after['ecoc_shed_total{reason="timeout"}'] == 0
    assert after['ecoc_shed_total{reason="connections"}'] == 0
    assert after['ecoc_reloads_total{result="failed"}'] == 5
    assert after["ecoc_batch_size_sum"] - before["ecoc_batch_size_sum"] == 580 + 2 * 40
    assert after["ecoc_batch_seconds_count"] == after["ecoc_batch_size_count"]


def test_labels_do_not_grow_with_what_clients_send(server: Server) -> None:
    def ask(client: httpx.Client, word: str) -> None:
        client.get(f"/{word}")
        client.get(f"/v2/models/{word}")
        client.get(f"/v1/items?query={word}", headers={"User-Agent": word})
        client.request(random.Random(word).choice(["PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"]), f"/v1/{word}")
        client.post(f"/admin/{word}", json={"path": word})

    with server.client(headers={"Authorization": "Bearer t"}) as client:
        for number in range(20):
            ask(client, f"first{number}")
        for _ in range(4):
            client.get("/metrics")  # each worker has counted one
        before = set(scrape(server))
        for number in range(100):
            ask(client, f"w{number}")
    grown = {name for name in set(scrape(server)) - before if not name.startswith("ecoc_waiting")}
    assert grown == set()


def test_the_model_that_answers_is_named_and_the_one_before_is_not(server: Server) -> None:
    with server.client(headers={"Authorization": "Bearer t"}) as client:
        model = client.post("/admin/reload", json={"path": "supervised-bundle"}).json()
        served = {name for name, value in scrape(server).items() if name.startswith("ecoc_model_info") and value}
        name, version = model["model"]["name"], model["model"]["version"]
        assert served == {f'ecoc_model_info{{name="{name}",version="{version}"}}'}
        assert scrape(server)['ecoc_reloads_total{result="ok"}'] == 1
