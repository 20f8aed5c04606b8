"""Export of the encoder as an ONNX graph, compared with torch before it is kept; `runs.onnx_encoder` opens it.

The graph begins after the look-up of item vectors, so it holds no item table, and ends with the state mu. The critic of
a model stays in torch: `shared` reads mu alone, the others encode the history themselves.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ecoc.batch import PAD, History
from ecoc.encoders import Encoder
from ecoc.errors import ArtifactError, InputError
from ecoc.model import Model
from ecoc.policies.base import Policy, TiedPolicy
from ecoc.runs.bundle import ONNX
from ecoc.runs.onnx_encoder import INTEGERS, STATE, VECTORS, OnnxEncoder, onnx_packages, random_history
from ecoc.storage.atomic import write_whole

_LARGEST = 1 << 31  # bytes of a graph in one file
_COMPARED = 20  # places of a list
_CLOSE = 1e-5  # of the largest score of a list, or of 1
_BATCHES = (1, 7, 64)
_SHORTEST = 3  # torch's exporter takes smaller lengths for constants


def write_onnx(model: Model, folder: Path) -> None:
    """Write the encoder of a model to a folder, if onnxruntime lists the same items with it as torch does."""
    policy = model.policy.without_counts
    if not isinstance(policy, TiedPolicy):
        raise InputError(f"{model.name}: method {model.config.method_name} has no encoder to export as ONNX")
    name = str(model.config.encoder_name)
    content = _graph(policy, name)
    try:
        encoder = OnnxEncoder(content, dim=policy.encoder.dim, where=ONNX, threads=torch.get_num_threads())
        check_parity(model.policy, policy, encoder)
    except ArtifactError as error:
        raise InputError(f"encoder {name} cannot be exported as ONNX: {str(error).partition(';')[0]}") from None
    write_whole(folder / ONNX, [content])


@torch.inference_mode()
def check_parity(ranking: Policy, policy: TiedPolicy, encoder: OnnxEncoder) -> None:
    """Refuse an encoder whose lists or scores differ from torch's; `ranking` is `policy`, maybe with a counts term."""
    lengths = sorted({1, min(2, policy.length), (policy.length + 1) // 2, policy.length})
    for seed, (rows, length) in enumerate((rows, length) for rows in _BATCHES for length in lengths):
        history = random_history(policy, rows=rows, length=length, seed=seed)
        if seed % 2:
            history = replace(history, times=None, request_times=None)
        query = ranking.query(history)
        items, scores = ranking.topk(query, _COMPARED)
        with _computed_by(policy, encoder):
            given_items, given_scores = ranking.topk(ranking.query(history), _COMPARED)
        limit = _CLOSE * scores[items != PAD].abs().max().clamp(min=1)
        own_scores = ranking.scores_of(query, given_items)[0]  # torch's scores of the items that onnxruntime lists
        for place in ((given_scores - scores), (own_scores - scores)):
            if not bool((place[items != PAD].abs() <= limit).all()):
                raise ArtifactError(f"its lists for {rows} histories of {length} items differ from torch's")


@contextmanager
def _computed_by(policy: TiedPolicy, encoder: OnnxEncoder) -> Iterator[None]:
    policy.runtime = encoder
    try:
        yield
    finally:
        policy.runtime = None


class _Graph(nn.Module):
    """What the graph computes: item vectors of the history and its integers -> state."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, vectors: Tensor, items: Tensor, feedback: Tensor, times: Tensor, requests: Tensor) -> Tensor:
        history = History(items, feedback, None, times, requests)
        places = torch.arange(items.shape[0] * items.shape[1]).view(items.shape)  # each position is an item of its own
        embedded = self.encoder.embed(vectors.flatten(0, 1), replace(history, items=places))
        return self.encoder.last(embedded, history)


class _Gru(nn.Module):
    """`nn.GRU` as the one ONNX operator, which takes any length; the exporter would unroll it."""

    input_weight: Tensor
    hidden_weight: Tensor
    bias: Tensor

    def __init__(self, gru: nn.GRU) -> None:
        super().__init__()
        self.width = gru.hidden_size

        def joined(name: str) -> Tensor:
            reset, update, new = getattr(gru, name).detach().chunk(3)
            return torch.cat([update, reset, new])[None]

        self.register_buffer("input_weight", joined("weight_ih_l0"))
        self.register_buffer("hidden_weight", joined("weight_hh_l0"))
        self.register_buffer("bias", torch.cat([joined("bias_ih_l0"), joined("bias_hh_l0")], 1))

    @staticmethod
    def takes(gru: nn.GRU) -> bool:
        """Whether it is of the kind that encoders use."""
        return gru.num_layers == 1 and bool(gru.bias) and gru.batch_first and not gru.bidirectional

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        count, length, _ = x.shape
        result = torch.onnx.ops.symbolic(
            "GRU",
            (x.transpose(0, 1), self.input_weight, self.hidden_weight, self.bias),
            {"hidden_size": self.width, "linear_before_reset": 1},
            dtype=x.dtype,
            shape=(length, 1, count, self.width),
        )
        return result.squeeze(1).transpose(0, 1), None


def _graph(policy: TiedPolicy, name: str) -> bytes:
    """The encoder of a policy as an ONNX file."""
    onnx, _ = onnx_packages("export")
    try:
        import onnxscript  # noqa: F401 - torch's exporter needs it
    except ImportError as error:
        raise InputError(f"export needs {error.name}: pip install 'ecoc[onnx]'") from None
    if policy.length < _SHORTEST:
        raise InputError(f"encoder.length {policy.length} is too short for ONNX; train with at least {_SHORTEST}")
    encoder = deepcopy(policy.encoder).requires_grad_(False).train(False)
    encoder.forget_users()
    _replace_gru(encoder)
    history = random_history(policy, rows=3, length=min(7, policy.length), seed=0)
    vectors = nn.functional.embedding(history.items, policy.item_vectors().detach())
    any_size = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    try:
        with _quiet(), torch.no_grad():
            program = torch.export.export(
                _Graph(encoder),
                (vectors, *(getattr(history, field) for field in INTEGERS)),
                dynamic_shapes=[any_size] * (1 + len(INTEGERS)),
                strict=False,
            )
            exported: Any = torch.onnx.export(
                program, dynamo=True, input_names=[VECTORS, *INTEGERS], output_names=[STATE], verbose=False
            )
            return _bare(exported.model_proto, onnx)
    except InputError:
        raise
    except Exception as error:  # torch and onnxscript have many classes of their own
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"encoder {name} cannot be exported as ONNX: {type(error).__name__}: {reason}") from None


def _replace_gru(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, nn.GRU) and _Gru.takes(child):
            setattr(module, name, _Gru(child))
        else:
            _replace_gru(child)


def _bare(model: Any, onnx: Any) -> bytes:
    """The graph without inputs that nothing reads, and without notes on the code and the machine it came from."""
    graph = model.graph
    used = {name for node in graph.node for name in node.input}
    inputs = [value for value in graph.input if value.name in used or value.name == VECTORS]
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        for field in ("doc_string", "metadata_props"):
            part.ClearField(field)
    for field, kept in (("input", inputs), ("value_info", [])):
        copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
        graph.ClearField(field)
        getattr(graph, field).extend(copies)
    if model.ByteSize() >= _LARGEST:
        raise InputError(f"the graph has {model.ByteSize():,} bytes, more than one ONNX file can hold")
    return bytes(model.SerializeToString(deterministic=True))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's notes on packages that the export does not need."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
