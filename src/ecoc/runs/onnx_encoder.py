"""The encoder of a bundle as an ONNX graph, computed by onnxruntime; docs/formats.md.

    vectors        [batch, length, d] float32   item vectors of the history, zero after its end
    items          [batch, length] int64        the items themselves, 0 after the end
    feedback, times, request_times              [batch, length] int64, if the encoder reads them; 0 unknown
    state          [batch, d] float32           the result, mu

The file is not trusted. It holds plain tensor operations only: no loop, no branch, no function, no operator of another
domain, no file beside it. Memory of a computation is limited. Its states must be those of the model's weights.
"""

import os
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from ecoc.batch import PAD, History
from ecoc.errors import ArtifactError, InputError
from ecoc.policies.base import TiedPolicy
from ecoc.runs.bundle import ONNX, Bundle
from ecoc.storage.trusted import printable

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto, ValueInfoProto

VECTORS, STATE = "vectors", "state"
INTEGERS = ("items", "feedback", "times", "request_times")
_MOST_NODES = 20_000
_SPARE = 2 << 20  # bytes of a file beside its weights
_MEMORY = 256 << 20  # bytes of all computations of a process
_ROWS = 64  # most histories per computation
_CELLS = 1 << 22  # most cells [rows, length, length or d] per computation
_CLOSE = 1e-4  # of the largest number of a state, or of 1
_EXPORT_AGAIN = "export it again with --onnx"

OPERATORS = frozenset(
    """
    Abs Add And Cast CastLike Ceil Clip Concat Constant ConstantOfShape Conv CumSum Div Dropout Einsum Elu Equal Erf Exp
    Expand Flatten Floor GRU Gather GatherElements GatherND Gelu Gemm Greater GreaterOrEqual HardSigmoid HardSwish
    Identity IsInf IsNaN LSTM LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax MatMul Max Mean Min Mish Mod
    Mul Neg Not OneHot Or Pad Pow RMSNormalization RNN Range Reciprocal ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax
    ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Round ScatterElements ScatterND Shape Sigmoid
    Sign Size Slice Softmax Softplus Softsign Split Sqrt Squeeze Sub Sum Swish Tanh Tile TopK Transpose Trilu Unsqueeze
    Where Xor
    """.split()  # noqa: SIM905 - a list would take a line per word
)
"""Plain tensor operations. Each gives tensors of numbers and runs no part of the graph."""


class OnnxEncoder:
    """Computes states by onnxruntime; what `TiedPolicy.runtime` takes."""

    def __init__(self, content: bytes, *, dim: int, where: str, threads: int = 1) -> None:
        """Check a graph and make it ready. `where` names it in messages."""
        onnx, runtime = onnx_packages("runtime onnx")
        self.dim, self.where = dim, where
        try:
            model = onnx.load_model_from_string(content)
        except Exception as error:  # protobuf has error classes of its own
            raise self._broken(f"not readable ({_line(error)})") from None
        try:
            self.inputs = _checked_inputs(model, dim)
        except ValueError as error:
            raise self._broken(str(error)) from None
        del model
        try:
            self._session = _session(runtime, content, threads)
        except Exception as error:  # the classes of onnxruntime have no base of their own
            raise self._broken(f"onnxruntime refuses it ({_line(error)})") from None

    @classmethod
    def of_bundle(cls, bundle: Bundle, policy: TiedPolicy) -> "OnnxEncoder":
        """The encoder of a bundle, with as many threads as torch has here, after its states were compared."""
        if ONNX not in bundle.record.files:
            raise InputError(f"{bundle.path}: holds no {ONNX}; export the run again with --onnx")
        weights = sum(tensor.nbytes for tensor in policy.encoder.state_dict().values())
        content = bundle.content(ONNX, largest=2 * weights + _SPARE)
        where = str(bundle.path / ONNX)
        encoder = cls(content, dim=policy.encoder.dim, where=where, threads=torch.get_num_threads())
        encoder.compare(policy)
        return encoder

    def __call__(self, vectors: Tensor, history: History) -> Tensor:
        """States after whole histories: item vectors [V, d], history -> [B, d]."""
        count, length = history.items.shape
        rows = max(1, min(_ROWS, _CELLS // max(1, length * max(length, self.dim))))
        if count <= rows:
            return self._run(vectors, history)
        parts = [torch.arange(first, min(first + rows, count)) for first in range(0, count, rows)]
        return torch.cat([self._run(vectors, history.rows(part)) for part in parts])

    def __deepcopy__(self, memo: dict[int, Any]) -> "OnnxEncoder":
        return self

    def _run(self, vectors: Tensor, history: History) -> Tensor:
        values = {VECTORS: embedding(history.items, vectors.detach()).numpy()}
        for name in self.inputs:
            if name != VECTORS:
                given: Tensor | None = getattr(history, name)
                values[name] = (torch.zeros_like(history.items) if given is None else given).numpy()
        try:
            state: np.ndarray[Any, Any] = self._session.run([STATE], values)[0]
        except Exception as error:
            raise self._broken(f"onnxruntime cannot compute it ({_line(error)})") from None
        if state.shape != (len(history.items), self.dim) or state.dtype != np.float32:
            raise self._broken(f"gives states of shape {list(state.shape)}, expected {[len(history.items), self.dim]}")
        if not np.isfinite(state).all():
            raise self._broken("gives numbers that are not finite")
        return torch.from_numpy(state)

    @torch.inference_mode()
    def compare(self, policy: TiedPolicy) -> None:
        """Refuse a graph whose states are not those of the policy's encoder, on a few histories."""
        for length in {1, min(3, policy.length), policy.length}:
            history = random_history(policy, rows=2, length=length, seed=length)
            for case in (history, replace(history, times=None, request_times=None)):
                expected, given = policy.state(case), self(policy.item_vectors(), case)
                if float((expected - given).abs().max()) > _CLOSE * max(1.0, float(expected.abs().max())):
                    raise self._broken("its states are not those of the model's weights")

    def _broken(self, what: str) -> ArtifactError:
        return ArtifactError(f"{self.where}: {what}; {_EXPORT_AGAIN}")


def random_history(policy: TiedPolicy, *, rows: int, length: int, seed: int) -> History:
    """Random histories with feedback and times; the first has `length` items, the others at most so many."""
    generator = torch.Generator().manual_seed(seed)

    def draw(first: int, last: int) -> Tensor:
        return torch.randint(first, last + 1, (rows, length), generator=generator)

    lengths = draw(1, length)[:, :1]
    lengths[0] = length
    is_real = torch.arange(length) < lengths
    items = draw(PAD + 1, policy.items)
    items[:, 1::4] = items[:, :1]  # repeats, which session graphs read
    times = 1_600_000_000 + draw(0, 1_000_000).cumsum(1)
    requests = torch.cat([times[:, 1:], times[:, -1:] + 60], 1)
    feedback = draw(0, policy.encoder.dims.feedback)
    return History(items * is_real, feedback * is_real, None, times * is_real, requests * is_real)


def onnx_packages(purpose: str) -> tuple[Any, Any]:
    """Packages onnx and onnxruntime; `purpose` says what needs them. No other place imports onnxruntime.

    When it is imported, onnxruntime writes an identifier of the machine below the home folder and reports its use to
    its maker, unless this variable is set before.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    try:
        import onnx
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError as error:
        raise InputError(f"{purpose} needs {error.name}: pip install 'ecoc[onnx]'") from None
    return onnx, onnxruntime


def _session(runtime: Any, content: bytes, threads: int) -> Any:
    _limit_memory(runtime)
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4  # failures are raised
    for name, value in {
        "session.use_env_allocators": "1",  # the limited memory
        "session.use_device_allocator_for_initializers": "1",  # weights are not part of it
        "session.intra_op.allow_spinning": "0",  # waiting threads would take the processor from other workers
    }.items():
        options.add_session_config_entry(name, value)
    # Folding would compute constants outside the limited memory; the exporter has folded them.
    return runtime.InferenceSession(
        content, options, providers=["CPUExecutionProvider"], disabled_optimizers=["ConstantFolding"]
    )


@cache
def _limit_memory(runtime: Any) -> None:
    """Limit the memory that all graphs of this process compute in: a few bytes can ask for a tensor of any size."""
    runtime.disable_telemetry_events()  # if something else has imported it before
    memory = runtime.OrtMemoryInfo("Cpu", runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, runtime.OrtMemType.DEFAULT)
    arena = {
        "max_mem": _MEMORY,
        "arena_extend_strategy": 1,  # as much as is asked for
        "initial_chunk_size_bytes": -1,
        "max_dead_bytes_per_chunk": -1,
    }
    with suppress(Exception):  # the program that uses ecoc has set a limit already
        runtime.create_and_register_allocator(memory, runtime.OrtArenaCfg(arena))


def _checked_inputs(model: "ModelProto", dim: int) -> list[str]:
    """Names of the inputs of a graph that holds nothing but plain tensor operations; else a ValueError."""
    graph = model.graph
    if len(model.functions) or len(model.training_info) or len(graph.sparse_initializer):
        raise ValueError("it holds more than a graph of tensor operations")
    if [opset.domain for opset in model.opset_import] not in ([""], ["ai.onnx"]):
        raise ValueError("it uses operators that are not part of ONNX")
    if len(graph.node) > _MOST_NODES:
        raise ValueError(f"it has {len(graph.node):,} operations, more than {_MOST_NODES:,}")
    _check_nodes(graph)
    for tensor in graph.initializer:
        _check_tensor(tensor)
    names = [value.name for value in graph.input]
    if len(set(names)) != len(names) or VECTORS not in names or not set(names) <= {VECTORS, *INTEGERS}:
        raise ValueError(f"its inputs are not {VECTORS} and some of {', '.join(INTEGERS)}")
    if not set(names).isdisjoint(tensor.name for tensor in graph.initializer):
        raise ValueError("an input is a constant at the same time")
    if [value.name for value in graph.output] != [STATE]:
        raise ValueError(f"its output is not {STATE}")
    for value in (*graph.input, *graph.output):
        shapes: dict[str, list[int | None]] = {VECTORS: [None, None, dim], STATE: [None, dim]}
        _check_value(value, _INT64 if value.name in INTEGERS else _FLOAT, shapes.get(value.name, [None, None]))
    return names


_FLOAT, _INT64 = 1, 7  # of onnx.TensorProto
_PLAIN = {1, 2, 3, 4, 6, 7, 8, 9}  # of onnx.AttributeProto: numbers, text, tensors and lists of them


def _check_nodes(graph: "GraphProto") -> None:
    for node in graph.node:
        if node.domain not in ("", "ai.onnx") or node.op_type not in OPERATORS:
            raise ValueError(f"it uses operator '{printable(node.op_type)[:40]}', which no encoder needs")
        for attribute in node.attribute:
            if attribute.type not in _PLAIN or attribute.ref_attr_name:
                raise ValueError("an operation holds a graph of its own")
            for tensor in (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors):
                _check_tensor(tensor)


def _check_tensor(tensor: "TensorProto") -> None:
    """Refuse constants that are kept in another file, or are not numbers."""
    import onnx
    from onnx.numpy_helper import to_array

    if tensor.data_location != onnx.TensorProto.DEFAULT or len(tensor.external_data):
        raise ValueError("its weights are kept in another file")
    try:
        values = to_array(tensor)
    except Exception as error:  # a claim of its shape or type is wrong
        raise ValueError(f"a constant is not readable ({_line(error)})") from None
    if values.dtype.kind not in "bif" or bool(np.isnan(values).any()):
        raise ValueError("a constant is not a number")


def _check_value(value: "ValueInfoProto", kind: int, shape: list[int | None]) -> None:
    """Refuse an input or output of another type or shape; None is any size."""
    tensor = value.type.tensor_type
    sizes = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    if tensor.elem_type != kind or sizes != shape:
        raise ValueError(f"{value.name} has another type or shape than the model's")


def _line(error: Exception) -> str:
    """The first words of a foreign message, on one line."""
    return printable(" ".join(str(error).split()))[:160]
