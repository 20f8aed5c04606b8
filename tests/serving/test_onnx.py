"""The encoder as an ONNX graph: it lists what torch lists, and a file that is not that graph is refused."""

import hashlib
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from server_case import ECOC, Server
from serving_case import some_requests

import ecoc
from ecoc.encoders import ENCODERS
from ecoc.errors import ArtifactError, InputError
from ecoc.model import Model
from ecoc.policies.base import TiedPolicy
from ecoc.runs.bundle import BUNDLE, ONNX
from ecoc.runs.onnx_encoder import OPERATORS, OnnxEncoder
from ecoc.serving import onnx as exporting
from ecoc.serving.engine import Served, run_batch

SETTINGS: dict[str, dict[str, Any]] = {"nextitnet": {"dilations": [1, 2]}, "caser": {"window": 3}}
ONNX_INPUTS = {"hstu": ["vectors", "items", "feedback", "times", "request_times"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "data"
    ecoc.prepare("world:small", path, events=3000, threads=1)
    return path


def trained(data: Path, name: str, encoder: str = "sasrec", **config: Any) -> Path:
    """A short run. The learning rate is so high that no weight stays near its start."""
    run = data.parent / name
    own = {"dim": 8, "length": 12, "feedback": True, **SETTINGS.get(encoder, {})}
    train = {"max_steps": 5, "warmup": 0, "lr": 0.05, "threads": 1, "counts": "off", **config.pop("train", {})}
    names = {key: config.pop(key) for key in ("method",) if isinstance(config.get(key), str)}
    ecoc.train(data, run, encoder=encoder, config={"encoder": own, "train": train, **config}, **names)
    return run


@pytest.fixture(scope="module")
def bundle(data: Path) -> Path:
    """A bundle of SASRec with its graph, which tests must not change."""
    path = data.parent / "sasrec-bundle"
    ecoc.export(trained(data, "sasrec"), path, onnx=True)
    return path


@pytest.fixture(scope="module")
def critic_bundle(data: Path) -> Path:
    """A bundle with a critic of its own and a counts term."""
    path = data.parent / "ecoc-bundle"
    run = trained(data, "ecoc", train={"counts": 0.5}, method="ecoc")
    ecoc.export(run, path, onnx=True)
    return path


def holds_a_table(content: bytes, model: Model) -> bool:
    """Whether a constant of a graph has a row per item or per user."""
    sizes = {size for tensor in onnx.load_model_from_string(content).graph.initializer for size in tensor.dims}
    policy = model.policy.without_counts
    assert isinstance(policy, TiedPolicy)
    return bool(sizes & {policy.items, policy.items + 1, policy.encoder.dims.users, policy.encoder.dims.users + 1})


def histories(model: Model, count: int, seed: int) -> list[list[tuple[str, str, float]]]:
    rng, ids = random.Random(seed), model.vocab.all_ids()
    lengths = [rng.choice([1, 2, 3, 11, 12, 13, 30]) for _ in range(count)]
    times = [sorted(rng.randrange(1_500_000_000, 1_600_000_000) for _ in range(length)) for length in lengths]
    return [[(rng.choice(ids), rng.choice([*model.feedback, "?"]), time) for time in row] for row in times]


def check_same(torch_model: Model, onnx_model: Model, count: int = 1000) -> None:
    """Top-20 ids equal, scores within 1e-5, for batches of 1, 7 and 64 histories with and without times."""
    for size, share in ((1, 0.05), (7, 0.25), (64, 0.7)):
        for first in range(0, int(count * share), size):
            rows: list[Any] = list(histories(torch_model, size, seed=1000 * size + first))
            if first % 2:
                rows = [[event[:2] for event in row] for row in rows]
            expected, given = torch_model.recommend(rows, 20), onnx_model.recommend(rows, 20)
            assert given.items == expected.items
            for scores, wanted in zip(given.scores, expected.scores, strict=True):
                np.testing.assert_allclose(scores, wanted, rtol=0, atol=1e-5 * max(1, *map(abs, wanted)))


@pytest.mark.parametrize("encoder", [name for name in ENCODERS if name != "sasrec"])
def test_every_encoder_exports_and_lists_what_torch_lists(data: Path, encoder: str) -> None:
    path = data.parent / f"{encoder}-bundle"
    result = ecoc.export(trained(data, encoder, encoder), path, onnx=True)
    content = (path / ONNX).read_bytes()
    assert result.files[ONNX] == len(content) < 1_000_000
    assert not holds_a_table(content, ecoc.load(path))
    torch_model, onnx_model = ecoc.load(path), ecoc.load(path, runtime="onnx")
    check_same(torch_model, onnx_model)
    policy = onnx_model.policy.without_counts
    assert isinstance(policy, TiedPolicy)
    assert isinstance(policy.runtime, OnnxEncoder)
    assert policy.runtime.inputs == ONNX_INPUTS.get(encoder, ["vectors", "items", "feedback"])


def test_sasrec_lists_what_torch_lists_and_a_run_without_graph_is_refused(bundle: Path, data: Path) -> None:
    check_same(ecoc.load(bundle), ecoc.load(bundle, runtime="onnx"))
    with pytest.raises(InputError, match=r"runtime onnx needs a bundle; write it with ecoc export --onnx$"):
        ecoc.load(data.parent / "sasrec", runtime="onnx")
    with pytest.raises(InputError, match="runtime: unknown value"):
        ecoc.load(bundle, runtime="other")  # type: ignore[arg-type]


def test_requests_of_any_mix_with_critic_and_counts(critic_bundle: Path) -> None:
    served, expected = Served(ecoc.load(critic_bundle, runtime="onnx")), Served(ecoc.load(critic_bundle))
    requests = some_requests(served.ids, 150, has_critic=True)
    for size in (1, 7, 64):
        for first in range(0, len(requests), size):
            part = requests[first : first + size]
            pairs = zip(
                *(run_batch(kind, [kind.read(each) for each in part]) for kind in (served, expected)), strict=True
            )
            for answer, wanted in pairs:
                assert answer.items == wanted.items
                np.testing.assert_allclose(answer.scores, wanted.scores, rtol=1e-5, atol=1e-5)
                assert (answer.values is None) == (wanted.values is None)
                np.testing.assert_allclose(answer.values or [], wanted.values or [], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("critic", ["shared", "separate"])
def test_other_critics_read_the_state_of_the_graph(data: Path, critic: str) -> None:
    path = data.parent / f"{critic}-bundle"
    run = data.parent / critic
    config = {"encoder": {"dim": 8, "length": 12}, "method": {"critic": critic}, "train": {"max_steps": 5}}
    ecoc.train(data, run, method="ecoc", encoder="stamp", config=config)
    ecoc.export(run, path, onnx=True)
    check_same(ecoc.load(path), ecoc.load(path, runtime="onnx"), count=200)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder in which onnxruntime would write; it does not where `CI` is set."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CI", "ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_the_server_answers_by_onnx_and_reports_to_nobody(critic_bundle: Path, home: Path) -> None:
    model = ecoc.load(critic_bundle)
    server = Server(critic_bundle, "--runtime", "onnx", "--workers", "2")
    try:
        for history in histories(model, 20, seed=3):
            names = [event[0] for event in history]
            body = {"history": names, "k": 20, "exclude_seen": False}
            answer = httpx.post(f"{server.address}/v1/recommend", json=body, trust_env=False).json()
            assert [item["item"] for item in answer["items"]] == model.recommend([names], 20).items[0]
    finally:
        assert server.stop() == 0
    assert not list(home.rglob("*icrosoft*")), "onnxruntime wrote an identifier of the machine"


def test_onnxruntime_would_report_without_the_variable(home: Path) -> None:
    statement = "import sys, onnxruntime; onnxruntime.disable_telemetry_events()"
    subprocess.run([ECOC.parent / "python", "-c", statement], check=True, timeout=60)
    assert list(home.rglob("*icrosoft*")), "the check of the test above sees nothing any more"


# Tampered files


def changed(bundle: Path, target: Path, content: bytes, *, checksum: str | None = None) -> Path:
    """A copy of a bundle with another graph, which its description lists as its own."""
    shutil.copytree(bundle, target)
    (target / ONNX).write_bytes(content)
    record = json.loads((target / BUNDLE).read_bytes())
    record["files"][ONNX] = {"bytes": len(content), "sha256": checksum or hashlib.sha256(content).hexdigest()}
    (target / BUNDLE).write_text(json.dumps(record))
    return target


def edited(change: Callable[[onnx.ModelProto], object]) -> Callable[[bytes], bytes]:
    def edit(content: bytes) -> bytes:
        model = onnx.load_model_from_string(content)
        change(model)
        return bytes(model.SerializeToString())

    return edit


def weights(model: onnx.ModelProto) -> TensorProto:
    """The largest constant of a graph."""
    largest: TensorProto = max(model.graph.initializer, key=lambda tensor: tensor.ByteSize())
    return largest


def refer_to_a_file(model: onnx.ModelProto) -> None:
    tensor = weights(model)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "/etc/passwd"), ("offset", "0"), ("length", "64")):
        tensor.external_data.add(key=key, value=value)


def scale(factor: float) -> Callable[[onnx.ModelProto], None]:
    def change(model: onnx.ModelProto) -> None:
        tensor = weights(model)
        values = numpy_helper.to_array(tensor) * np.float32(factor)
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float32), tensor.name))

    return change


def rename_input(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        node.input[:] = ["other" if name == "items" else name for name in node.input]
    next(value for value in model.graph.input if value.name == "items").name = "other"


def append(*nodes: onnx.NodeProto, constants: tuple[TensorProto, ...] = ()) -> Callable[[onnx.ModelProto], None]:
    """Give the state another name, `mu`, from which the given nodes compute `state`."""

    def change(model: onnx.ModelProto) -> None:
        for node in model.graph.node:
            node.output[:] = ["mu" if name == "state" else name for name in node.output]
        model.graph.node.extend(nodes)
        model.graph.initializer.extend(constants)

    return change


def widen(model: onnx.ModelProto) -> None:
    append(helper.make_node("Concat", ["mu", "mu"], ["state"], axis=1))(model)
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value *= 2


def add_function(model: onnx.ModelProto) -> None:
    model.functions.add(name="Own", domain="own").opset_import.add(domain="", version=20)


def add_domain(model: onnx.ModelProto) -> None:
    model.opset_import.add(domain="com.microsoft", version=1)
    append(helper.make_node("Gelu", ["mu"], ["state"], domain="com.microsoft"))(model)


def add_branch(model: onnx.ModelProto) -> None:
    out = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
    body = helper.make_graph([helper.make_node("Identity", ["mu"], ["inner"])], "body", [], [out])
    condition = numpy_helper.from_array(np.array(True), "condition")
    node = helper.make_node("If", ["condition"], ["state"], then_branch=body, else_branch=body)
    append(node, constants=(condition,))(model)


def grow(model: onnx.ModelProto) -> None:
    """Ask for 2 GB in a few bytes."""
    size = numpy_helper.from_array(np.array([1 << 29]), "size")
    nodes = (
        helper.make_node("ConstantOfShape", ["size"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["sum"], keepdims=0),
        helper.make_node("Add", ["mu", "sum"], ["state"]),
    )
    append(*nodes, constants=(size,))(model)


def become_infinite(model: onnx.ModelProto) -> None:
    """Infinite if item 7 is in a history, unchanged otherwise."""
    seven = numpy_helper.from_array(np.array(7), "seven")
    unit = numpy_helper.from_array(np.array(1, np.float32), "unit")
    nodes = (
        helper.make_node("Equal", ["items", "seven"], ["is_seven"]),
        helper.make_node("Cast", ["is_seven"], ["flags"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["flags"], ["flag"], keepdims=0),
        helper.make_node("Sub", ["unit", "flag"], ["rest"]),
        helper.make_node("Div", ["flag", "rest"], ["much"]),
        helper.make_node("Add", ["mu", "much"], ["state"]),
    )
    append(*nodes, constants=(seven, unit))(model)


TAMPERED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "garbage": (lambda content: random.Random(0).randbytes(5000), "not readable"),
    "empty": (lambda content: b"", "it uses operators that are not part of ONNX"),
    "truncated": (lambda content: content[: len(content) // 2], "not readable"),
    "too large": (lambda content: content + bytes(8 << 20), "more than the limit"),
    "external data": (edited(refer_to_a_file), "weights are kept in another file"),
    "other input names": (edited(rename_input), "its inputs are not vectors and some of items, feedback"),
    "wider state": (edited(widen), "state has another type or shape"),
    "not a number": (edited(scale(float("nan"))), "a constant is not a number"),
    "infinite": (edited(scale(float("inf"))), "gives numbers that are not finite"),
    "other weights": (edited(scale(1.01)), "its states are not those of the model's weights"),
    "function": (edited(add_function), "it holds more than a graph of tensor operations"),
    "other domain": (edited(add_domain), "operators that are not part of ONNX"),
    "branch": (edited(add_branch), "it uses operator 'If', which no encoder needs"),
    "2 GB": (edited(grow), "onnxruntime cannot compute it"),
    "missing node": (edited(lambda model: model.graph.node.pop(3)), "onnxruntime refuses it"),
    "wrong shape": (edited(lambda model: weights(model).dims.__setitem__(0, 999)), "a constant is not readable"),
    "many nodes": (edited(lambda model: [model.graph.node.add() for _ in range(30_000)]), "30,0.. operations, more"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_tampered_graph_is_refused_in_one_line(bundle: Path, tmp_path: Path, name: str) -> None:
    change, message = TAMPERED[name]
    path = changed(bundle, tmp_path / "model", change((bundle / ONNX).read_bytes()))
    with pytest.raises(ArtifactError, match=message) as caught:
        ecoc.load(path, runtime="onnx")
    assert caught.value.exit_code == 3
    assert str(caught.value).startswith(str(path / ONNX))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400 + len(str(path))
    ecoc.load(path)  # torch does not need the graph


def test_an_unchanged_copy_opens(bundle: Path, tmp_path: Path) -> None:
    ecoc.load(
        changed(bundle, tmp_path / "model", edited(lambda model: None)((bundle / ONNX).read_bytes())), runtime="onnx"
    )


def test_another_checksum_a_missing_file_and_a_link_are_refused(bundle: Path, tmp_path: Path) -> None:
    content = (bundle / ONNX).read_bytes()
    with pytest.raises(ArtifactError, match="its checksum differs"):
        ecoc.load(changed(bundle, tmp_path / "checksum", content, checksum="0" * 64), runtime="onnx")
    path = changed(bundle, tmp_path / "link", content)
    (path / ONNX).unlink()
    with pytest.raises(ArtifactError, match="missing"):
        ecoc.load(path, runtime="onnx")
    (path / ONNX).symlink_to(bundle / ONNX)
    with pytest.raises(ArtifactError, match="a link that leads out of its folder"):
        ecoc.load(path, runtime="onnx")


def test_the_command_ends_with_3_one_line_and_little_memory(bundle: Path, tmp_path: Path) -> None:
    path = changed(bundle, tmp_path / "model", TAMPERED["2 GB"][0]((bundle / ONNX).read_bytes()))
    code, error, peak = ended(ECOC, "serve", path, "--port", "0", "--runtime", "onnx")
    assert (code, error.count(b"\n")) == (3, 1), error
    assert error.decode().startswith(str(path / ONNX))
    assert peak < 800 << 20


def ended(*command: object) -> tuple[int, bytes, int]:
    """Exit code, standard error and peak memory in bytes of a command.

    Its parent is a small process: a child counts the memory of its parent as its own until it runs its program.
    """
    measure = (
        "import os, subprocess, sys\n"
        "process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)\n"
        "_, status, usage = os.wait4(process.pid, 0)\n"
        "process.returncode = os.waitstatus_to_exitcode(status)\n"
        "print(process.returncode, usage.ru_maxrss * 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", measure, *map(str, command)], capture_output=True, timeout=120, check=True
    )
    code, peak = done.stdout.split()
    return int(code), done.stderr, int(peak)


def test_a_state_that_is_not_finite_reaches_no_answer(bundle: Path, tmp_path: Path) -> None:
    path = changed(bundle, tmp_path / "model", edited(become_infinite)((bundle / ONNX).read_bytes()))
    model, ids = ecoc.load(path, runtime="onnx"), ecoc.load(path).vocab.all_ids()
    assert model.recommend([ids[10:13]]).items == ecoc.load(path).recommend([ids[10:13]]).items
    with pytest.raises(ArtifactError, match=r"gives numbers that are not finite; export it again with --onnx$"):
        model.recommend([[ids[10], ids[6]]])


# Export


@pytest.mark.parametrize("factor", [1.001, 3.0])
def test_a_graph_that_differs_is_refused_at_export(
    bundle: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    perturbed = edited(scale(factor))((bundle / ONNX).read_bytes())
    monkeypatch.setattr(exporting, "_graph", lambda *arguments: perturbed)
    with pytest.raises(InputError, match=r"^encoder sasrec cannot be exported as ONNX: .*differ from torch's$"):
        ecoc.export(data.parent / "sasrec", tmp_path / "model", onnx=True)
    assert not (tmp_path / "model").exists()
    monkeypatch.setattr(exporting, "_graph", lambda *arguments: (bundle / ONNX).read_bytes())
    ecoc.export(data.parent / "sasrec", tmp_path / "model", onnx=True)


def test_an_export_of_the_same_run_has_the_same_bytes_and_names_no_place(bundle: Path, data: Path) -> None:
    again = data.parent / "again"
    ecoc.export(data.parent / "sasrec", again, onnx=True)
    content = (again / ONNX).read_bytes()
    assert content == (bundle / ONNX).read_bytes()
    assert b".py" not in content
    assert str(Path(ecoc.__file__).parent).encode() not in content
    model = onnx.load_model_from_string(content)
    assert {node.op_type for node in model.graph.node} <= OPERATORS
    assert not [tensor for tensor in model.graph.initializer if 201 in tensor.dims], (
        "the item table is not in the graph"
    )


def test_what_has_no_encoder_or_too_short_histories_says_so(data: Path, tmp_path: Path) -> None:
    ecoc.train(data, tmp_path / "markov", method="markov")
    with pytest.raises(InputError, match="markov: method markov has no encoder to export as ONNX"):
        ecoc.export(tmp_path / "markov", tmp_path / "model", onnx=True)
    config = {"encoder": {"dim": 8, "length": 2}, "train": {"max_steps": 2, "counts": "off"}}
    ecoc.train(data, tmp_path / "short", config=config)
    with pytest.raises(InputError, match=r"encoder.length 2 is too short for ONNX; train with at least 3"):
        ecoc.export(tmp_path / "short", tmp_path / "model", onnx=True)
    ecoc.export(tmp_path / "short", tmp_path / "model")
    with pytest.raises(InputError, match=r"holds no encoder.onnx; export the run again with --onnx"):
        ecoc.load(tmp_path / "model", runtime="onnx")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_a_missing_package_is_one_line(
    bundle: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"^export needs {package}: pip install 'ecoc\[onnx\]'$"):
        ecoc.export(data.parent / "sasrec", tmp_path / "model", onnx=True)
    if package != "onnxscript":
        with pytest.raises(InputError, match=rf"^runtime onnx needs {package}: pip install 'ecoc\[onnx\]'$"):
            ecoc.load(bundle, runtime="onnx")


def test_more_histories_than_one_computation_takes_and_a_copy_of_the_policy(bundle: Path) -> None:
    model, expected = ecoc.load(bundle, runtime="onnx"), ecoc.load(bundle)
    rows = histories(model, 200, seed=9)
    assert model.recommend(rows, 20).items == expected.recommend(rows, 20).items
    model.policy = deepcopy(model.policy)
    assert model.recommend(rows, 20).items == expected.recommend(rows, 20).items
