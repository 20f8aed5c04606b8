"""GRU4Rec, NARM, STAMP, Caser and NextItNet against their formulas, one prefix at a time, in plain code."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ecoc.batch import PAD, Dims, History
from ecoc.encoders.base import Encoder
from ecoc.encoders.caser import Caser
from ecoc.encoders.gru4rec import GRU4Rec
from ecoc.encoders.narm import NARM
from ecoc.encoders.nextitnet import NextItNet
from ecoc.encoders.stamp import STAMP
from ecoc.errors import InputError

DIM, ITEMS = 6, 9
Weights = Mapping[str, Tensor]

_DRAW = torch.Generator().manual_seed(0)
ROWS = [
    [1],
    [2, 2],
    [3, 1, 3, 3, 1, 3],
    *(torch.randint(1, ITEMS + 1, (n,), generator=_DRAW).tolist() for n in (4, 17)),
]


pytestmark = pytest.mark.usefixtures("one_thread")


def build(kind: type[Encoder], **settings: Any) -> Encoder:
    """An encoder in double precision with weights drawn large, so that no term is too small to be seen."""
    encoder = kind(kind.Config(dim=DIM, length=30, **settings), Dims(ITEMS)).double().eval()
    generator = torch.Generator().manual_seed(4)
    for weight in encoder.parameters():
        nn.init.normal_(weight, std=0.5, generator=generator)
    return encoder


def draw_table() -> Tensor:
    table = torch.randn(ITEMS + 1, DIM, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    table[PAD] = 0
    return table


def history(rows: list[list[int]], padding: int = 0) -> History:
    width = max(map(len, rows)) + padding
    return History(torch.tensor([row + [PAD] * (width - len(row)) for row in rows]))


def states(encoder: Encoder, seen: History) -> Tensor:
    found: Tensor = encoder(encoder.embed(draw_table(), seen), seen)
    return found


def linear(w: Weights, name: str, x: Tensor) -> Tensor:
    out = w[f"{name}.weight"] @ x
    return out + w[f"{name}.bias"] if f"{name}.bias" in w else out


def head(w: Weights, x: Tensor) -> Tensor:
    if "head.2.weight" not in w:
        return linear(w, "head.0", x)
    return linear(w, "head.2", linear(w, "head.0", x).clamp(min=0))


def recur(w: Weights, xs: Tensor) -> list[Tensor]:
    """The GRU's equations: h = (1 - z) n + z h."""
    w_r, w_z, w_n = w["gru.weight_ih_l0"].chunk(3)
    u_r, u_z, u_n = w["gru.weight_hh_l0"].chunk(3)
    b_r, b_z, b_n = w["gru.bias_ih_l0"].chunk(3)
    c_r, c_z, c_n = w["gru.bias_hh_l0"].chunk(3)
    h = torch.zeros_like(u_r[0])
    found = []
    for x in xs:
        r = torch.sigmoid(w_r @ x + b_r + u_r @ h + c_r)
        z = torch.sigmoid(w_z @ x + b_z + u_z @ h + c_z)
        n = torch.tanh(w_n @ x + b_n + r * (u_n @ h + c_n))
        h = (1 - z) * n + z * h
        found.append(h)
    return found


def naive_gru4rec(w: Weights, xs: Tensor, _: Any) -> Tensor:
    return head(w, recur(w, xs)[-1])


def naive_narm(w: Weights, xs: Tensor, _: Any) -> Tensor:
    hidden = recur(w, xs)
    local = torch.zeros_like(hidden[-1])
    for h in hidden:
        local = local + (w["v"] @ torch.sigmoid(linear(w, "key_o", h) + linear(w, "key_t", hidden[-1]))) * h
    return head(w, torch.cat([local, hidden[-1]]))


def naive_stamp(w: Weights, xs: Tensor, _: Any) -> Tensor:
    mean, current = xs.sum(0) / len(xs), xs[-1]
    memory = torch.zeros_like(current)
    for x in xs:
        key = linear(w, "key_o", x) + linear(w, "key_t", current) + linear(w, "key_mean", mean)
        memory = memory + (w["v"] @ torch.sigmoid(key)) * x
    return torch.tanh(linear(w, "general", memory)) * torch.tanh(linear(w, "current", current))


def naive_caser(w: Weights, xs: Tensor, settings: Mapping[str, Any]) -> Tensor:
    window = settings["window"]
    image = torch.cat([torch.zeros(window, DIM, dtype=xs.dtype), xs])[-window:]
    features = [column @ image + bias for column, bias in zip(w["vertical"].T, w["vertical_bias"], strict=True)]
    horizontal = settings["horizontal"]
    for height in range(1, window + 1):
        for k in range(horizontal):
            rows = w[f"horizontal.{height - 1}"][:, :, k].T  # [height, d]
            bias = w["horizontal_bias"][(height - 1) * horizontal + k]
            places = [(rows * image[start : start + height]).sum() for start in range(window - height + 1)]
            features.append(torch.stack([(place + bias).clamp(min=0) for place in places]).max()[None])
    return linear(w, "out", torch.cat(features))


def naive_nextitnet(w: Weights, xs: Tensor, settings: Mapping[str, Any]) -> Tensor:
    kernel = settings["kernel"]

    def convolve(name: str, dilation: int, past: list[Tensor]) -> list[Tensor]:
        out = []
        for t in range(len(past)):
            y = w[f"{name}.bias"]
            for tap in range(kernel):
                source = t - (kernel - 1 - tap) * dilation
                y = y + past[source] @ w[f"{name}.weight"][tap] if source >= 0 else y
            y = (y - y.mean()) / (y.var(correction=0) + 1e-5).sqrt()
            out.append((y * w[f"{name}.norm.weight"] + w[f"{name}.norm.bias"]).clamp(min=0))
        return out

    now = list(xs)
    for block, dilation in enumerate(settings["dilations"]):
        inner = convolve(f"blocks.{block}.narrow", dilation, now)
        outer = convolve(f"blocks.{block}.wide", 2 * dilation, inner)
        now = [x + y for x, y in zip(now, outer, strict=True)]
    return linear(w, "final", now[-1]) if settings["final_fc"] else now[-1]


Naive = Callable[[Weights, Tensor, Mapping[str, Any]], Tensor]
KINDS: dict[str, tuple[type[Encoder], dict[str, Any], Naive]] = {
    "gru4rec": (GRU4Rec, {"hidden": 5, "head": 7}, naive_gru4rec),
    "gru4rec-linear": (GRU4Rec, {"hidden": 5, "head": 0}, naive_gru4rec),
    "narm": (NARM, {"hidden": 5, "head": 7}, naive_narm),
    "narm-linear": (NARM, {"hidden": 5, "head": 0}, naive_narm),
    "stamp": (STAMP, {}, naive_stamp),
    "caser": (Caser, {"window": 5, "vertical": 2, "horizontal": 3}, naive_caser),
    "caser-one": (Caser, {"window": 1, "vertical": 2, "horizontal": 3}, naive_caser),
    "nextitnet": (NextItNet, {"dilations": (1, 2, 4, 1), "kernel": 3, "final_fc": False}, naive_nextitnet),
    "nextitnet-fc": (NextItNet, {"dilations": (8, 1), "kernel": 2, "final_fc": True}, naive_nextitnet),
}
every_kind = pytest.mark.parametrize("name", KINDS)
ENCODERS = ("gru4rec", "narm", "stamp", "caser", "nextitnet")
every_encoder = pytest.mark.parametrize("name", ENCODERS)


def build_kind(name: str) -> Encoder:
    kind, settings, _ = KINDS[name]
    return build(kind, **settings)


def by_prefix(name: str, encoder: Encoder, row: list[int]) -> Tensor:
    """The formula on every prefix of a row, [L, d]."""
    _, settings, naive = KINDS[name]
    xs = draw_table()[row] * DIM**0.5
    return torch.stack([naive(dict(encoder.named_parameters()), xs[: t + 1], settings) for t in range(len(row))])


@every_kind
def test_every_state_is_the_formula_on_its_prefix(name: str) -> None:
    encoder, seen = build_kind(name), history(ROWS, padding=2)
    found = states(encoder, seen)
    last = encoder.last(encoder.embed(draw_table(), seen), seen)
    for row, items in enumerate(ROWS):
        expected = by_prefix(name, encoder, items)
        torch.testing.assert_close(found[row, : len(items)], expected)
        torch.testing.assert_close(last[row], expected[-1])


@every_kind
def test_every_parameter_gets_the_gradient_of_the_formula(name: str) -> None:
    encoder, row = build_kind(name), ROWS[-1][:9]
    factor = torch.randn(len(row), DIM, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    weights = dict(encoder.named_parameters())
    found = torch.autograd.grad((states(encoder, history([row, [1]]))[0] * factor).sum(), tuple(weights.values()))
    expected = torch.autograd.grad((by_prefix(name, encoder, row) * factor).sum(), tuple(weights.values()))
    for key, one, other in zip(weights, found, expected, strict=True):
        assert one.abs().max() > 0, key
        torch.testing.assert_close(one, other)


@every_kind
def test_later_items_other_rows_and_padding_change_no_state(name: str) -> None:
    encoder = build_kind(name)
    alone = states(encoder, history([ROWS[-1]]))[0]
    changed = [*ROWS[-1][:12], 5, 5, 1, 2]
    among = states(encoder, history([ROWS[0], changed, ROWS[2]], padding=9))
    torch.testing.assert_close(among[1, :12], alone[:12])
    assert not torch.allclose(among[1, 15], alone[15])
    assert among.isfinite().all()


@every_kind
def test_a_gradient_from_one_state_stays_in_its_own_past(name: str) -> None:
    encoder, seen = build_kind(name), history(ROWS, padding=3)
    embedded = encoder.embed(draw_table(), seen).requires_grad_()
    (gradient,) = torch.autograd.grad(encoder(embedded, seen)[-1, 6].sum(), embedded)
    touched = gradient.abs().sum(-1) > 0
    assert touched[-1, 6]
    assert not touched[-1, 7:].any()
    assert not touched[:-1].any()


@every_kind
def test_no_state_is_kept_to_one_side(name: str) -> None:
    found = states(build_kind(name), history([ROWS[-1]]))
    assert (found > 0).any()
    assert (found < 0).any()


@every_encoder
def test_a_cycle_of_items_is_learned(name: str) -> None:
    kind = KINDS[name][0]
    torch.manual_seed(0)
    encoder = kind(kind.Config(dim=16, length=10), Dims(12)).train()
    table = nn.Parameter(torch.randn(13, 16) * 0.05)
    optimiser = torch.optim.Adam([table, *encoder.parameters()], lr=1e-2)
    start = torch.arange(12)[:, None] + torch.arange(11)
    cycle = start % 12 + 1  # item k is followed by k + 1
    seen, target = History(cycle[:, :-1]), cycle[:, 1:]
    for _ in range(60):
        scores = encoder(encoder.embed(table, seen), seen) @ table[1:].T
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten() - 1)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    encoder.eval()
    best = (encoder.last(encoder.embed(table, seen), seen) @ table[1:].T).argmax(-1) + 1
    assert (best == target[:, -1]).all()


def test_dropout_works_in_training_only() -> None:
    for kind, setting in ((NARM, "readout_dropout"), (Caser, "conv_dropout")):
        encoder = build(kind, **{setting: 0.5, "dropout": 0.0})
        seen = history(ROWS)
        assert torch.equal(states(encoder, seen), states(encoder, seen))
        encoder.train()
        assert not torch.equal(states(encoder, seen), states(encoder, seen))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (GRU4Rec, {"hidden": 0}),
        (NARM, {"readout_dropout": 1.0}),
        (Caser, {"window": 0}),
        (NextItNet, {"dilations": []}),
        (NextItNet, {"dilations": [1, 0]}),
        (NextItNet, {"kernel": 0}),
    ],
)
def test_a_wrong_setting_is_refused_by_name(kind: type[Encoder], values: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(values))):
        kind.Config.build(values)
