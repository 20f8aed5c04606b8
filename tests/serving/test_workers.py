"""Several processes of one server: they share memory and connections, take a new model together, and end together."""

import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from load_case import TOKEN, bundle_folder, loaded, metric, wait_until
from server_case import Server, serving

BEARER = {"Authorization": f"Bearer {TOKEN}"}
BODY = {"history": ["item-1"], "k": 3}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a bundle of 50,000 items and requests."""
    return bundle_folder(tmp_path_factory.getbasetemp(), 50_000, 0)


@pytest.fixture(scope="module")
def small(models: Path) -> Path:
    """A bundle of few items."""
    return models / "ecoc-bundle"


@pytest.fixture(scope="module")
def server(large: Path, small: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    options = ["--workers", "2", "--models", str(tmp_path_factory.getbasetemp())]
    with serving(small, *options, token=TOKEN) as server:
        yield server
        workers = children(server.process.pid)
    assert server.process.returncode == 0
    assert not any(map(is_running, workers))


def children(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return sorted(map(int, text.split()))


def is_running(process: int) -> bool:
    with suppress(FileNotFoundError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def versions(server: Server, count: int = 24) -> Counter[str]:
    """Versions of the models that answer to new connections."""
    found: Counter[str] = Counter()
    for _ in range(count):
        answer = httpx.post(f"{server.address}/v1/recommend", json=BODY, headers=BEARER, timeout=20, trust_env=False)
        found[answer.json()["model"]["version"]] += 1
    return found


def reload(server: Server, path: Path) -> httpx.Response:
    with server.client(headers=BEARER) as client:
        return client.post("/admin/reload", json={"path": str(path)})


def test_both_workers_answer_and_their_figures_are_added_up(server: Server, large: Path, tmp_path: Path) -> None:
    workers = children(server.process.pid)
    before = [_cpu(worker) for worker in workers]
    name = 'ecoc_requests_total{route="/v1/recommend",status="200"}'
    counted = metric(server, name)
    with loaded(server, large / "policy.jsonl", tmp_path / "x.json", clients=16) as outcomes:
        time.sleep(2)
    spent = [_cpu(worker) - used for worker, used in zip(workers, before, strict=True)]
    print(f"processor time of the workers: {spent}")
    assert len(workers) == 2
    assert set(outcomes[0].counts) == {200}
    assert min(spent) > 0.1 * sum(spent)
    assert metric(server, name) - counted == len(outcomes[0].status)


def _cpu(process: int) -> int:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def mapped(process: int, file: Path) -> dict[str, int]:
    """Bytes of the maps of a file, by kind."""
    sizes: Counter[str] = Counter()
    is_file = False
    for line in Path(f"/proc/{process}/smaps").read_text().splitlines():
        name, *values = line.split()
        if not name.endswith(":"):
            is_file = line.endswith(str(file.resolve()))
        elif is_file and values[-1] == "kB":
            sizes[name[:-1]] += 1024 * int(values[0])
    return dict(sizes)


@pytest.mark.parametrize("items", [50_000, pytest.param(150_000, marks=pytest.mark.soak)])
def test_workers_share_one_copy_of_the_matrix(
    server: Server, tmp_path_factory: pytest.TempPathFactory, items: int
) -> None:
    folder = bundle_folder(tmp_path_factory.getbasetemp(), items, 0)
    assert reload(server, folder / "bundle").status_code == 200
    file = folder / "bundle" / "matrix.safetensors"
    for _ in range(8):
        versions(server, 4)
    maps = [mapped(worker, file) for worker in children(server.process.pid)]
    print(f"{file.stat().st_size / 1e6:.0f} MB", [{name: sizes[name] for name in ("Rss", "Pss")} for sizes in maps])
    for sizes in maps:
        assert sizes["Size"] >= file.stat().st_size
        assert sizes["Rss"] > 0.9 * file.stat().st_size, "the matrix is not read through the map"
        assert sizes["Private_Dirty"] == 0
        assert sizes["Private_Clean"] < 0.05 * file.stat().st_size
        assert sizes["Pss"] < 0.6 * sizes["Rss"]
    assert items == 50_000 or file.stat().st_size > 100_000_000


def test_a_model_reaches_all_workers_or_none(server: Server, large: Path, small: Path) -> None:
    assert reload(server, small).status_code == 200
    before = versions(server)
    assert len(before) == 1
    worker = children(server.process.pid)[1]
    failed = metric(server, 'ecoc_reloads_total{result="failed"}')
    size = os.sysconf("SC_PAGE_SIZE") * int(Path(f"/proc/{worker}/statm").read_text().split()[0])
    usual = resource.prlimit(worker, resource.RLIMIT_AS, (size + (1 << 20), resource.RLIM_INFINITY))  # no room to load
    try:
        answer = reload(server, large / "bundle")
    finally:
        resource.prlimit(worker, resource.RLIMIT_AS, usual)
    print(answer.status_code, answer.text)
    assert answer.status_code == 422
    assert versions(server) == before
    assert metric(server, 'ecoc_reloads_total{result="failed"}') == failed + 1
    answer = reload(server, large / "bundle")
    assert answer.status_code == 200
    assert list(versions(server)) == [answer.json()["model"]["version"]] != list(before)


def test_a_killed_worker_is_replaced_and_others_answer_meanwhile(server: Server, large: Path, tmp_path: Path) -> None:
    assert reload(server, large / "bundle").status_code == 200
    current = versions(server, 1)
    workers = children(server.process.pid)
    with loaded(server, large / "policy.jsonl", tmp_path / "x.json", clients=16) as outcomes:
        time.sleep(0.5)
        os.kill(workers[0], signal.SIGKILL)
        killed = last_error = time.monotonic()
        answered = 0
        while answered < 30:  # each by a new connection
            try:
                answered += sum(versions(server, 1).values())
            except httpx.TransportError:  # the kernel gave the connection to the worker that was just killed
                last_error = time.monotonic()
        waited = last_error - killed
        wait_until(lambda: len(children(server.process.pid)) == 2 and reload(server, large / "bundle").is_success, 60)
        replaced = time.monotonic() - killed
    outcome = outcomes[0]
    print(f"connections reset for {waited:.2f} s, worker replaced in {replaced:.1f} s, {outcome.counts}")
    assert waited < 0.5 * outcome.slow[1]
    assert workers[0] not in children(server.process.pid)
    assert set(outcome.counts) <= {200, 0}
    assert outcome.counts.get(0, 0) <= 16, "more than what the killed worker had in hand"
    assert outcome.seconds.max() < 5
    assert list(versions(server)) == list(current), "the new worker has another model"
    assert "starting it again" in server.log


def test_workers_end_when_their_parent_is_killed(small: Path) -> None:
    with serving(small, "--workers", "2", token=TOKEN) as server:
        workers = children(server.process.pid)
        assert len(workers) == 2
        server.process.kill()
        assert server.process.wait(30) == -signal.SIGKILL
        wait_until(lambda: not any(map(is_running, workers)), 30)
