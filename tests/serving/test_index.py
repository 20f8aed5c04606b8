"""The index: lists from compressed items are the exact ones, or nearly, and where that is not known they are exact."""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ecoc
from ecoc.errors import ArtifactError, InputError
from ecoc.model import Model, as_history
from ecoc.policies.base import Policy
from ecoc.policies.counts import CountsQuery, PolicyWithCounts
from ecoc.policies.ranking import Query
from ecoc.runs.bundle import BUNDLE, INDEX
from ecoc.serving import index as index_module
from ecoc.serving.engine import Answer, Request, Served, run_batch
from ecoc.serving.index import LEAST_SHARE, LISTED, REQUIRED, WEIGHTS, ItemIndex, measure, scanned
from ecoc.storage.atomic import write_whole
from ecoc.storage.checkpoint import safetensors_pieces

ITEMS, USERS, ROWS = 12_000, 3000, 45_000


@pytest.fixture(scope="module", autouse=True)
def steady(one_thread: None) -> None:
    """Sums have one order."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, write_log: Callable[..., Path]) -> Path:
    """A log of many items, three runs on it, and bundles of two of them with an index."""
    path = tmp_path_factory.mktemp("index")
    log = write_log(path / "log.csv", ROWS, USERS, ITEMS)
    options: dict[str, Any] = {
        "user": "user",
        "item": "item",
        "time": "ts",
        "feedback": "event",
        "reward": "view=0.2,cart=1,buy=3",
    }
    filters: dict[str, Any] = {"min_item_support": 1, "min_length": 2, "split": "leave-one-out"}
    data = ecoc.prepare(log, path / "data", **options, **filters, threads=1)
    train = {"max_steps": 30, "threads": 1}
    encoder = {"dim": 16, "length": 12}
    for name, counts in (("ecoc", 0.5), ("sqn", "off"), ("markov", "off")):
        ecoc.train(data, path / name, method=name, config={"encoder": encoder, "train": {**train, "counts": counts}})
    for name in ("ecoc", "sqn"):
        ecoc.export(path / name, path / f"{name}-model", index=True)
    return path


@pytest.fixture(scope="module")
def served(folder: Path) -> Served:
    return Served(ecoc.load(folder / "ecoc-model"))


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of candidates of each scan that takes place."""
    counts: list[int] = []
    real = ItemIndex.candidates

    def candidates(self: ItemIndex, vectors: Tensor, count: int) -> Tensor:
        counts.append(count)
        return real(self, vectors, count)

    monkeypatch.setattr(ItemIndex, "candidates", candidates)
    yield counts


def opened(served: Served) -> ItemIndex:
    assert served._index is not None
    return served._index


def histories(served: Served, count: int, seed: int = 0) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    return [[served.ids[i] for i in rng.integers(len(served.ids), size=rng.integers(1, 12))] for _ in range(count)]


def answers(served: Served, requests: list[Request]) -> list[Answer]:
    return run_batch(served, [served.read(request) for request in requests])


def exactly(model: Model, request: Request) -> list[str]:
    view = model.ranked_by(request.rank_by, w=request.w, m=request.m)
    filters: dict[str, Any] = {"exclude_seen": request.exclude_seen, "exclude": request.exclude, "only": request.only}
    return view.recommend([request.history], request.k, **filters).items[0]


def queries(policy: Policy, served: Served, count: int, seed: int = 1) -> Query:
    read = [served.model.read(history) for history in histories(served, count, seed)]
    with torch.inference_mode():
        return policy.query(as_history(read, policy.length))


# Lists


@pytest.mark.parametrize("given", [*({"w": w} for w in (0.0, 0.3, 1.0, 3.0, 10.0)), {"rank_by": "policy"}, {}])
def test_served_lists_hold_at_least_the_required_share_of_the_exact_ones(
    served: Served, scans: list[int], given: dict[str, Any]
) -> None:
    requests = [Request(history=history, k=20, **given) for history in histories(served, 60)]
    shares = [
        len(set(answer.items) & set(exactly(served.model, request))) / 20
        for request, answer in zip(requests, answers(served, requests), strict=True)
    ]
    assert scans
    assert np.mean(shares) >= REQUIRED


def test_a_list_is_the_exact_order_of_its_candidates(served: Served) -> None:
    index, policy = opened(served), served.model.policy.without_counts.ranked_by("blend", w=2.0)
    query = queries(policy, served, 20)
    with torch.inference_mode():
        items, scores = index.topk(policy, query, 20)
        points = {point.w: point.factor for point in index.points}
        chosen = index.candidates(query.vector, max(points[1.0], points[2.0]) * 20)
        for row in range(len(query)):
            best, own = policy.topk(query[row : row + 1], 20, only=chosen[row])
            assert torch.equal(items[row], best[0])
            torch.testing.assert_close(scores[row], own[0])


def test_equal_scores_are_listed_by_item_index(served: Served, scans: list[int]) -> None:
    index, policy = opened(served), copy(served.model.policy.without_counts.ranked_by("blend", w=1.0))
    query = queries(policy, served, 5)
    policy.scores_of = lambda query, items: (torch.zeros(items.shape), torch.zeros(items.shape))  # type: ignore[method-assign]
    with torch.inference_mode():
        items, scores = index.topk(policy, query, 20)
    assert scans
    assert bool((scores == 0).all())
    assert bool((items.diff(dim=1) > 0).all())


def test_a_query_that_the_scan_cannot_answer_is_answered_exactly(served: Served, scans: list[int]) -> None:
    index, policy = opened(served), served.model.policy.without_counts.ranked_by("blend", w=0.0)
    query = Query(torch.zeros_like(queries(policy, served, 3).vector))
    with torch.inference_mode():
        items, _ = index.topk(policy, query, 20, exclude=torch.tensor([[2]]).expand(3, -1))
    assert scans
    assert items.tolist() == [[1, *range(3, 22)]] * 3


def test_a_model_without_a_critic_has_an_index_too(folder: Path, scans: list[int]) -> None:
    served = Served(ecoc.load(folder / "sqn-model"))
    requests = [Request(history=history, k=20) for history in histories(served, 40)]
    shares = [
        len(set(answer.items) & set(exactly(served.model, request))) / 20
        for request, answer in zip(requests, answers(served, requests), strict=True)
    ]
    assert scans
    assert np.mean(shares) >= REQUIRED


def test_excluded_items_are_not_listed_and_their_places_are_filled(served: Served, scans: list[int]) -> None:
    for history in histories(served, 10, seed=2):
        best = exactly(served.model, Request(history=history, k=40, w=1.0, exclude_seen=False))
        request = Request(history=history, k=20, w=1.0, exclude=best[:20], exclude_seen=False)
        (answer,) = answers(served, [request])
        assert not set(answer.items) & set(best[:20])
        assert len(set(answer.items) & set(best[20:])) >= 19
    assert scans


@pytest.mark.parametrize(
    "given",
    [
        {"w": WEIGHTS[-1] * 1.01},
        {"w": 1e6},
        {"rank_by": "rerank"},
        {"rank_by": "cosine"},
        {"w": 1.0, "k": 1000},
        {"w": 1.0, "k": ITEMS // LEAST_SHARE},
        {"w": 1.0, "exclude": "many"},
        {"w": 1.0, "only": "some"},
    ],
)
def test_what_the_index_was_not_measured_for_is_exact(served: Served, scans: list[int], given: dict[str, Any]) -> None:
    given = {"k": 10, **given}
    if "exclude" in given:
        given["exclude"] = served.ids[: len(served.ids) // LEAST_SHARE]
    if "only" in given:
        given["only"] = served.ids[100:400]
    requests = [Request(history=history, **given) for history in histories(served, 3)]
    for request, answer in zip(requests, answers(served, requests), strict=True):
        assert answer.items == exactly(served.model, request)
    assert not scans


def test_a_batch_of_any_mix_answers_each_request_as_if_alone(served: Served, scans: list[int]) -> None:
    modes: list[dict[str, Any]] = [{"w": 1.0}, {"w": 20.0}, {"w": 0.0, "k": 1}, {"rank_by": "policy"}, {}]
    modes += [{"w": 2.0, "exclude": served.ids[:3000]}, {"w": 10.0, "k": 35}]
    requests = [
        Request(history=history, **mode) for history, mode in zip([*histories(served, 27), []], modes * 4, strict=True)
    ]
    together = answers(served, requests)
    assert scans
    for request, answer in zip(requests, together, strict=True):
        (alone,) = answers(served, [request])
        assert len(answer.items) == request.k
        assert len(set(answer.items) & set(alone.items)) >= request.k - 1  # more candidates, never fewer
        if request.w == 20.0 or not request.history:
            assert answer.items == exactly(served.model, request)


# The counts term


@pytest.mark.parametrize("is_broken", [False, True])
def test_no_item_that_the_counts_raise_is_missed(
    served: Served, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    index, policy = opened(served), served.model.policy.ranked_by("blend", w=1.0)
    assert isinstance(policy, PolicyWithCounts)
    policy = policy.weighted(5.0)
    query = queries(policy, served, 40)
    assert isinstance(query, CountsQuery)
    if is_broken:
        monkeypatch.setattr(index_module, "_raised", lambda query: torch.zeros(len(query), 0, dtype=torch.int64))
    missed = 0
    with torch.inference_mode():
        items, _ = index.topk(policy, query, 20)
        exact, _ = policy.topk(query, 20)
        raised = query.gains.of(exact) > 0
        missed = int((raised & ~(exact[:, :, None] == items[:, None]).any(2)).sum())
        assert int(raised.sum()) > 100
    assert (missed > 0) == is_broken


# What is measured at export


@pytest.mark.parametrize("name", ["ecoc", "sqn"])
def test_the_recall_in_the_bundle_is_that_of_its_file(folder: Path, name: str) -> None:
    model, run = ecoc.load(folder / f"{name}-model"), ecoc.load(folder / name)
    policy, index = scanned(run.policy), ItemIndex.open(model)
    assert policy is not None
    assert index is not None
    with torch.inference_mode():
        encoded = policy.encoded(index_module._some_histories(run))[1::2]
        again = measure(index, policy, encoded)
    assert again == index.points
    assert [point.w for point in again] == (list(WEIGHTS) if name == "ecoc" else [0.0])
    assert all(point.recall >= REQUIRED for point in again)


def test_an_index_that_loses_items_is_not_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = index_module._joined

    def shuffled(*arguments: Any) -> dict[str, Tensor]:
        tensors = real(*arguments)
        return {**tensors, "codes": tensors["codes"][torch.randperm(len(tensors["codes"]))]}

    monkeypatch.setattr(index_module, "_joined", shuffled)
    with pytest.raises(InputError, match="would miss more than 2%"):
        ecoc.export(folder / "ecoc", tmp_path / "model", index=True)
    assert not (tmp_path / "model").exists()


def test_a_weight_for_which_no_factor_suffices_is_beyond_the_grid(
    served: Served, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Codes that know nothing of the value serve w = 0 alone."""
    index, run = opened(served), ecoc.load(folder / "ecoc")
    assert served.model.bundle is not None
    tensors = dict(served.model.bundle.tensors(INDEX))
    policy = scanned(run.policy)
    assert policy is not None
    tensors["directions"] = tensors["directions"].clone()
    tensors["directions"][16:] = 0
    with torch.inference_mode():
        points = measure(ItemIndex(tensors), policy, policy.encoded(index_module._some_histories(run))[1::2])
    assert points[0].w == 0.0
    assert len(points) < len(index.points)


def test_without_its_dataset_a_run_is_measured_with_popular_items(folder: Path, tmp_path: Path, served: Served) -> None:
    moved = folder / "data-elsewhere"
    (folder / "data").rename(moved)
    try:
        result = ecoc.export(folder / "ecoc", tmp_path / "model", index=True)
    finally:
        moved.rename(folder / "data")
    assert result.index is not None
    assert result.index.points != opened(served).points
    assert all(point.recall >= REQUIRED for point in result.index.points)


def test_the_command_says_what_was_measured(folder: Path, tmp_path: Path, run_ecoc: Callable[..., Any]) -> None:
    result = run_ecoc("export", folder / "sqn", "-o", tmp_path / "model", "--index")
    assert result.returncode == 0, result.stderr
    assert "recall of the exact best 20 through the index: w 0: " in result.stdout
    assert "items are few: without the index lists are exact and about as fast" in result.stdout


def test_a_method_without_item_vectors_and_a_small_catalogue_have_no_index(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="method markov has no item vectors"):
        ecoc.export(folder / "markov", tmp_path / "model", index=True)
    monkeypatch.setattr(index_module, "_FEWEST_ITEMS", ITEMS)  # a few items occur in no sequence that is trained on
    with pytest.raises(InputError, match="too few for an index"):
        ecoc.export(folder / "sqn", tmp_path / "model", index=True)
    assert not (tmp_path / "model").exists()


def test_without_the_package_the_message_names_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    model = ecoc.load(folder / "ecoc-model")
    assert len(model.recommend([["i1"]], 5).items[0]) == 5
    for work in (lambda: ecoc.export(folder / "ecoc", tmp_path / "model", index=True), lambda: Served(model)):
        with pytest.raises(InputError, match=r"an index needs faiss: pip install 'ecoc\[ann\]'"):
            work()


# Files that cannot be trusted


Tensors = dict[str, Tensor]
Change = Callable[[Tensors], Tensors | None]


def with_tensor(name: str, change: Callable[[Tensor], Tensor]) -> Change:
    return lambda tensors: {**tensors, name: change(tensors[name]).contiguous()}


def filled(tensor: Tensor, value: float) -> Tensor:
    tensor = tensor.clone()
    tensor.flatten()[7] = value
    return tensor


BROKEN: dict[str, Change] = {
    "no codes": lambda tensors: {name: tensor for name, tensor in tensors.items() if name != "codes"},
    "foreign tensor": lambda tensors: {**tensors, "more": torch.zeros(1)},
    "codes of other items": with_tensor("codes", lambda codes: codes[:-1]),
    "codes of other length": with_tensor("codes", lambda codes: codes[:, :-1]),
    "codes as numbers": with_tensor("codes", lambda codes: codes.float()),
    "flat codes": with_tensor("codes", lambda codes: codes.flatten()),
    "no item": with_tensor("codes", lambda codes: codes[:0]),
    "too few centres": with_tensor("codebooks", lambda centres: centres[:, :8]),
    "too many sub-quantisers": with_tensor("codebooks", lambda centres: centres.repeat(2, 1, 1)),
    "odd number": with_tensor("codebooks", lambda centres: centres[:-1]),
    "no sub-quantiser": with_tensor("codebooks", lambda centres: centres[:0]),
    "flat centres": with_tensor("codebooks", lambda centres: centres.flatten()),
    "NaN centre": with_tensor("codebooks", lambda centres: filled(centres, torch.nan)),
    "huge centre": with_tensor("codebooks", lambda centres: filled(centres, 3e38)),
    "infinite direction": with_tensor("directions", lambda directions: filled(directions, torch.inf)),
    "other directions": with_tensor("directions", lambda directions: directions[:-1]),
    "double directions": with_tensor("directions", lambda directions: directions.double()),
}


def tampered(
    source: Path, target: Path, change: Change | None = None, record: Callable[[dict[str, Any]], None] | None = None
) -> Path:
    """A copy of a bundle with another index, whose checksum is right, or another bundle.json."""
    shutil.copytree(source, target)
    values = json.loads((target / BUNDLE).read_text())
    if change is not None:
        bundle = ecoc.load(source).bundle
        assert bundle is not None
        (target / INDEX).unlink()
        write_whole(target / INDEX, safetensors_pieces(change(dict(bundle.tensors(INDEX))) or {}))
        content = (target / INDEX).read_bytes()
        values["files"][INDEX] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    if record is not None:
        record(values)
    (target / BUNDLE).write_text(json.dumps(values))
    return target


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_index_is_refused_in_one_line(folder: Path, tmp_path: Path, name: str) -> None:
    path = tampered(folder / "ecoc-model", tmp_path / "model", BROKEN[name])
    with pytest.raises(ArtifactError) as refused:
        Served(ecoc.load(path))
    assert "\n" not in str(refused.value)
    assert INDEX in str(refused.value)


def flip(values: dict[str, Any]) -> None:
    values["files"][INDEX]["sha256"] = "0" * 64


def lie(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda values: values["index"]["points"][0].update(changes)


RECORDS: dict[str, Callable[[dict[str, Any]], None]] = {
    "checksum": flip,
    "factor of a thousand million": lie(factor=10**9),
    "factor of none": lie(factor=0),
    "factor of a half": lie(factor=0.5),
    "weight below zero": lie(w=-1.0),
    "weight out of order": lie(w=7.0),
    "recall of two": lie(recall=2.0),
    "other kind": lambda values: values["index"].update(kind="hnsw"),
    "no points": lambda values: values["index"].update(points=[]),
    "many points": lambda values: values["index"].update(points=values["index"]["points"] * 1000),
    "index without file": lambda values: values["files"].pop(INDEX),
    "file without index": lambda values: values.update(index=None),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_lying_record_is_refused_in_one_line(folder: Path, tmp_path: Path, name: str) -> None:
    path = tampered(folder / "ecoc-model", tmp_path / "model", record=RECORDS[name])
    with pytest.raises(ArtifactError) as refused:
        Served(ecoc.load(path))
    assert "\n" not in str(refused.value)


def test_the_server_refuses_a_broken_index_with_exit_code_3(
    folder: Path, tmp_path: Path, run_ecoc: Callable[..., Any]
) -> None:
    path = tampered(folder / "ecoc-model", tmp_path / "model", BROKEN["NaN centre"])
    result = run_ecoc("serve", path, "--port", 0)
    assert result.returncode == 3, result.stderr
    assert "Traceback" not in result.stderr
    assert INDEX in result.stderr.splitlines()[-1]


def test_the_largest_factor_that_is_accepted_gives_exact_lists(folder: Path, tmp_path: Path, scans: list[int]) -> None:
    def largest(values: dict[str, Any]) -> None:
        for point in values["index"]["points"]:
            point["factor"] = 1024

    served = Served(ecoc.load(tampered(folder / "ecoc-model", tmp_path / "model", record=largest)))
    requests = [Request(history=history, k=LISTED, w=1.0) for history in histories(served, 3)]
    for request, answer in zip(requests, answers(served, requests), strict=True):
        assert answer.items == exactly(served.model, request)
    assert not scans


@pytest.mark.parametrize(
    "change",
    [
        with_tensor("codes", lambda codes: torch.randint(0, 256, codes.shape, dtype=torch.uint8)),
        with_tensor("codes", lambda codes: torch.full_like(codes, 255)),
        with_tensor("codebooks", lambda centres: torch.full_like(centres, 1e12)),
        with_tensor("codebooks", lambda centres: torch.randn_like(centres) * 1e11),
        with_tensor("directions", lambda directions: torch.full_like(directions, -1e12)),
        with_tensor("directions", torch.zeros_like),
    ],
)
def test_a_wrong_index_of_the_right_shape_does_no_harm(
    folder: Path, tmp_path: Path, scans: list[int], change: Change
) -> None:
    """Its lists may be poor; their items exist, each once, with the scores that the policy gives."""
    served = Served(ecoc.load(tampered(folder / "ecoc-model", tmp_path / "model", change)))
    index, policy = opened(served), served.model.policy.without_counts.ranked_by("blend", w=5.0)
    query = queries(policy, served, 4)
    with torch.inference_mode():
        items, scores = index.topk(policy, query, 20, exclude=torch.arange(1, 21).expand(4, -1))
        assert scans
        assert bool(((items >= 0) & (items <= policy.items)).all())
        assert not bool(((items > 0) & (items <= 20)).any())
        for row in range(4):
            real = items[row][items[row] > 0]
            assert len(real) == len(set(real.tolist()))
            torch.testing.assert_close(
                scores[row, : len(real)], policy.scores_of(query[row : row + 1], real[None])[0][0]
            )
