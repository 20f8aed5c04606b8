"""A server is closed by default: loopback only, or a token that every route asks for and that never leaks."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import httpx
import numpy as np
import pytest
from scipy import stats
from server_case import Server, serving

from ecoc.errors import InputError
from ecoc.serving.gate import TokenCheck
from ecoc.serving.page_routes import PAGE_PATHS
from ecoc.serving.settings import ServerSettings, is_loopback, read_token

TOKEN = "correct-horse-battery-staple-0123456789"
OPEN = {"/v2/health/live", "/v2/health/ready"}
Run = Callable[..., CompletedProcess[str]]


@pytest.fixture(scope="module")
def server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = tmp_path_factory.mktemp("secret") / "token"
    path.write_text(TOKEN + "\n")
    options = ("--host", "0.0.0.0", "--token-file", str(path), "--workers", "2", "--log-histories")
    with serving(models / "ecoc-bundle", *options, access_log=True) as server:
        yield server


@pytest.fixture(scope="module")
def open_server(models: Path) -> Iterator[Server]:
    with serving(models / "ecoc-bundle") as server:
        yield server


def routes(server: Server) -> list[tuple[str, str]]:
    """Method and path of everything that the document of the server lists, and of what it leaves out."""
    with server.client(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        paths = client.get("/openapi.json").json()["paths"]
    documented = [(method.upper(), path.format(name="ecoc")) for path, methods in paths.items() for method in methods]
    return [*documented, *(("GET", path) for path in PAGE_PATHS), ("GET", "/openapi.json"), ("GET", "/nowhere")]


def needs_token(server: Server, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Routes that answer 401, or break off, to requests with these headers."""
    closed = []
    with server.client() as client:
        for method, path in routes(server):
            response = client.request(method, path, json={} if method == "POST" else None, headers=headers)
            if response.status_code in (401, 431):
                closed.append((method, path))
                assert "error" in response.json()
                assert TOKEN not in response.text
    return closed


WRONG: dict[str, list[tuple[str, str]]] = {
    "missing": [],
    "empty": [("Authorization", "")],
    "no token": [("Authorization", "Bearer")],
    "quoted": [("Authorization", 'Bearer ""')],
    "wrong": [("Authorization", "Bearer wrong")],
    "prefix": [("Authorization", f"Bearer {TOKEN[:-1]}")],
    "longer": [("Authorization", f"Bearer {TOKEN}x")],
    "other case": [("Authorization", f"Bearer {TOKEN.upper()}")],
    "other scheme": [("Authorization", f"Basic {TOKEN}")],
    "no scheme": [("Authorization", TOKEN)],
    "overlong": [("Authorization", f"Bearer {'x' * 10_000}")],
    "too large": [("Authorization", f"Bearer {'x' * 20_000}")],
    "cookie": [("Cookie", f"token={TOKEN}")],
    "another header": [("X-Token", TOKEN)],
}


@pytest.mark.parametrize("headers", WRONG.values(), ids=WRONG)
def test_every_route_but_probes_and_files_of_the_page_needs_the_token(
    server: Server, headers: list[tuple[str, str]]
) -> None:
    everything = routes(server)
    if headers == WRONG["too large"]:  # refused before any route
        assert needs_token(server, headers) == everything
        return
    expected = [(method, path) for method, path in everything if path not in OPEN | PAGE_PATHS]
    assert needs_token(server, headers) == expected
    assert len(expected) >= 10


def test_no_route_answers_401_to_the_token(server: Server) -> None:
    assert server.address == f"http://127.0.0.1:{server.port}"  # of 0.0.0.0, for a caller on this machine
    assert needs_token(server, [("Authorization", f"Bearer {TOKEN}")]) == []
    assert needs_token(server, [("Authorization", f"bearer {TOKEN}")]) == []


def test_two_tokens_are_refused(server: Server) -> None:
    with server.client() as client:
        both = [("Authorization", "Bearer wrong"), ("Authorization", f"Bearer {TOKEN}")]
        assert client.get("/v1/items", headers=both).json()["error"]["code"] == "repeated_header"


def descendants(pid: int) -> list[int]:
    children = [
        int(stat.parent.name)
        for stat in Path("/proc").glob("[0-9]*/stat")
        if (text := _read(stat)) and int(text.rpartition(b")")[2].split()[1]) == pid
    ]
    return [pid, *(other for child in children for other in descendants(child))]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_the_token_is_in_no_log_process_list_error_or_metric(server: Server) -> None:
    texts = []
    with server.client(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        for method, path in routes(server):
            texts.append(client.request(method, path, json={} if method == "POST" else None).text)
        texts.append(client.get("/v1/items", params={"query": "x", "limit": "many"}).text)
        texts.append(client.post("/v1/recommend", content=b"{", headers={"content-type": "application/json"}).text)
        texts.append(client.post("/admin/reload", json={"path": "nowhere"}).text)
    processes = descendants(server.process.pid)
    assert len(processes) == 3
    for pid in processes:
        for name in ("cmdline", "environ", "comm"):
            content = _read(Path(f"/proc/{pid}/{name}"))
            assert content
            assert TOKEN.encode() not in content
    assert not any(TOKEN in text for text in texts)
    assert server.log.count('"status":401') > 10
    assert TOKEN not in server.log


def test_histories_are_logged_if_asked_for(server: Server) -> None:
    with server.client(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        client.post("/v1/recommend", json=[{"history": ["i0001", {"item": "i0002", "feedback": "buy"}]}, {}])
    events = '[["i0001",{"item":"i0002","feedback":"buy","time":null}],[]]'
    deadline = time.monotonic() + 10
    while events not in server.log and time.monotonic() < deadline:
        time.sleep(0.05)
    assert server.log.count(f'"history":{events}') == 1


class _EarlyEnd:
    """A check that stops at the first wrong byte: what the test below must notice."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def __call__(self, header: bytes) -> bool:
        given = header.partition(b" ")[2]
        for mine, other in zip(self._token, given, strict=False):
            if mine != other:
                return False
        return len(given) == len(self._token)


def timing_p(check: Callable[[bytes], bool], token: str) -> float:
    """p of the t-test between times of tokens that are right except for the last and for the first character."""
    late, early = (f"Bearer {text}".encode() for text in (token[:-1] + "#", "#" + token[1:]))
    rng = np.random.default_rng(0)
    seconds: dict[bytes, list[float]] = {late: [], early: []}
    for place in rng.permutation(2200).tolist():
        given = (late, early)[place % 2]
        start = time.perf_counter_ns()
        check(given)
        seconds[given].append(time.perf_counter_ns() - start)
    limit = np.quantile(seconds[late] + seconds[early], 0.95)  # interrupts of the machine are no part of the check
    kept = [[value for value in values[100:] if value <= limit] for values in seconds.values()]
    return float(stats.ttest_ind(*kept, equal_var=False).pvalue)


def test_the_time_of_the_check_does_not_tell_how_much_of_a_token_is_right() -> None:
    token = "t" * 200
    assert timing_p(_EarlyEnd(token), token) < 1e-6
    check = TokenCheck(token)
    assert check(b"Bearer " + token.encode())
    assert max(timing_p(check, token) for _ in range(3)) > 0.01


def test_a_server_without_options_is_reached_through_loopback_only(open_server: Server) -> None:
    assert open_server.address.startswith("http://127.0.0.1:")
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    port = f"{open_server.port:04X}"
    listening = [row[1] for row in table if row[3] == "0A" and row[1].endswith(f":{port}")]
    assert listening == [f"0100007F:{port}"]
    assert not any(line.split()[1].endswith(f":{port}") for line in Path("/proc/net/tcp6").read_text().splitlines()[1:])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "", "127.0.0.1.example.org"])
def test_another_address_without_a_token_is_refused(models: Path, host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(InputError, match="a token is needed"):
        ServerSettings(models, host=host)
    assert ServerSettings(models, host=host, token="t").host == host


def test_the_command_refuses_it_in_one_line(models: Path, run_ecoc: Run) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "ECOC_TOKEN"}
    done = run_ecoc("serve", models / "ecoc-bundle", "--host", "0.0.0.0", "--port", 0, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "token" in done.stderr
    done = run_ecoc("serve", models / "ecoc-bundle", "--port", 0, env={**environment, "ECOC_TOKEN": ""})
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def fifo(path: Path) -> None:
    os.mkfifo(path)


CONTENTS: dict[str, Callable[[Path], object]] = {
    "FIFO": fifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": lambda path: path.mkdir(),
    "missing": lambda path: None,
    "broken link": lambda path: path.symlink_to("nowhere"),
    "empty": lambda path: path.write_text(""),
    "spaces": lambda path: path.write_text(" \n"),
    "huge": lambda path: path.write_bytes(b"x" * 50_000_000),
    "too long": lambda path: path.write_bytes(b"x" * 4097),
    "binary": lambda path: path.write_bytes(b"\xff\xfe\x00\x01token"),
    "two lines": lambda path: path.write_text("one\ntwo"),
    "not ASCII": lambda path: path.write_text("tokén"),
    "control": lambda path: path.write_text("to\x1b[31mken"),
}


@pytest.mark.parametrize("make", CONTENTS.values(), ids=CONTENTS)
def test_a_token_file_that_holds_no_token_is_refused(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "token")
    with pytest.raises(InputError) as refused:
        read_token(tmp_path / "token")
    assert str(tmp_path / "token") in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "ken" not in str(refused.value).replace("token", "")


@pytest.mark.parametrize("name", ["FIFO", "huge", "binary"])
def test_the_command_says_so_in_one_line(models: Path, tmp_path: Path, run_ecoc: Run, name: str) -> None:
    CONTENTS[name](tmp_path / "token")
    done = run_ecoc("serve", models / "ecoc-bundle", "--port", 0, "--token-file", tmp_path / "token")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


def status(client: httpx.Client, **headers: str) -> int:
    return client.get("/v1/items", headers=headers).status_code


def test_pages_of_other_sites_get_no_answer(open_server: Server) -> None:
    port = open_server.port
    with open_server.client() as client:
        for name in (f"127.0.0.1:{port}", f"localhost:{port}", "LocalHost", f"[::1]:{port}"):
            assert status(client, Host=name) == 200
            assert status(client, Host=name, Origin=f"http://{name}") == 200
        for name in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", f"localhost@evil:{port}", ""):
            assert status(client, Host=name) == 400
            assert status(client, Host=name, Origin=f"http://{name}") == 400
        for origin in (
            "http://evil.example",
            "null",
            "",
            f"http://127.0.0.1:{port + 1}",
            "http://127.0.0.1",
            "file://",
        ):
            assert status(client, Origin=origin) == 403
        assert client.post("/v1/recommend", content="{}", headers={"Content-Type": "text/plain"}).status_code == 415


def test_any_name_is_served_where_a_token_is_needed_unless_names_are_given(models: Path) -> None:
    anywhere = ServerSettings(models, host="0.0.0.0", token="t")
    assert anywhere.hosts is None
    named = ServerSettings(models, host="0.0.0.0", token="t", allowed_hosts=("Shop.example",))
    assert named.hosts == frozenset({"shop.example"})


@pytest.mark.parametrize("path", ["/admin/reload", "/admin", "/%61dmin/reload", "/admin/reload?x=1"])
def test_the_administrator_needs_a_token_to_exist(open_server: Server, path: str) -> None:
    with open_server.client() as client:
        refused = client.post(path, json={})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "no_token")
