"""TrainStep: the parts of a step against a loop written out, its phases, its guard, and its state."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ecoc.batch import Batch, Dims, History, TrainSequences
from ecoc.errors import InputError
from ecoc.methods import Loss, Method
from ecoc.methods.build import build_method
from ecoc.runs.config import RunConfig
from ecoc.training.step import DivergedError, TrainStep, learning_rate

pytestmark = pytest.mark.usefixtures("one_thread")
ITEMS, ROWS, LENGTH, STEPS = 60, 4, 6, 10


def batch_of(step: int) -> Batch:
    random = np.random.default_rng([5, step])
    events = torch.from_numpy(random.integers(1, ITEMS + 1, (ROWS, LENGTH + 1)))
    history = History(events[:, :-1], torch.ones(ROWS, LENGTH, dtype=torch.int64), torch.arange(ROWS) + 1)
    rewards = torch.from_numpy(random.random((ROWS, LENGTH)).astype(np.float32))
    return Batch(history, events[:, 1:], rewards, torch.zeros(ROWS, LENGTH))


def config_of(method: str, train: dict[str, Any], **options: Any) -> RunConfig:
    encoder = {"name": "gru4rec", "dim": 8, "length": LENGTH, "dropout": 0.0}
    return RunConfig.build({"encoder": encoder, "method": {"name": method, **options}, "train": train})


def method_of(config: RunConfig) -> Method:
    torch.manual_seed(0)
    method = build_method(config, Dims(ITEMS, ROWS, 2))
    items = np.random.default_rng(1).integers(1, ITEMS + 1, 60)
    method.fit_statistics(TrainSequences(items, np.arange(0, 61, 6), np.ones(60, np.float32)))
    return method


def taken(config: RunConfig, *, sparse: bool = False, steps: range = range(STEPS)) -> TrainStep:
    train_step = TrainStep(method_of(config), config.train, steps=STEPS, sparse=sparse)
    for step in steps:
        torch.manual_seed(step)
        train_step(batch_of(step), step)
    return train_step


def weights(method: Method) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in method.named_parameters()}


def equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_step_is_adam_on_the_clipped_gradient_and_an_average_that_follows() -> None:
    """Against torch's own Adam and a Polyak average written out."""
    config = config_of("supervised", {"ema": 0.3, "clip": 0.5, "lr": 0.05, "weight_decay": 0.01})
    train_step = taken(config)
    slow = method_of(config).train()
    settings = config.train
    betas = (settings.beta1, settings.beta2)
    adam = torch.optim.Adam(slow.parameters(), lr=0.0, betas=betas, weight_decay=settings.weight_decay)
    average = {name: p.detach().clone() for name, p in slow.policy.named_parameters()}
    for step in range(STEPS):
        torch.manual_seed(step)
        slow.loss(batch_of(step)).total.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(slow.parameters(), 0.5)
        adam.param_groups[0]["lr"] = learning_rate(step, STEPS, settings)
        adam.step()
        adam.zero_grad()
        rate = max(0.3, 1 / (step + 9))
        for name, p in slow.policy.named_parameters():
            average[name] += rate * (p.detach() - average[name])
    for name, weight in weights(slow).items():
        torch.testing.assert_close(train_step.method.get_parameter(name).detach(), weight, atol=2e-5, rtol=1e-4)
    assert train_step.averaged is not None
    for name, weight in average.items():
        copied = train_step.averaged.copy.get_parameter(name)
        torch.testing.assert_close(copied, weight, atol=2e-5, rtol=1e-4)


def test_sparse_steps_keep_untouched_rows_and_average_them_like_dense_ones() -> None:
    config = config_of("supervised", {"ema": 0.2, "table": "sparse"}, loss="sampled", n2=2, in_batch=False)
    before = weights(method_of(config))["policy.table"]
    train_step = taken(config, sparse=True, steps=range(1))
    table = train_step.method.get_parameter("policy.table").detach()
    moved = {int(row) for row in (table != before).any(1).nonzero()}
    batch = batch_of(0)
    seen = {*batch.target.flatten().tolist(), *batch.history.items.flatten().tolist()}
    assert seen & moved
    assert len(moved - seen) <= 2, "the shared negatives"
    assert train_step.averaged is not None
    train_step.averaged.sync_rows()
    copied = train_step.averaged.copy.get_parameter("table")
    torch.testing.assert_close(copied, before + 0.2 * (table - before))


def test_the_phase_of_a_step_sets_the_rate_and_begins_with_fresh_moments() -> None:
    config = config_of("sa2c", {"schedule": "constant", "warmup": 0, "lr": 0.01}, warmup=0.4, lr_drop=0.2)
    train_step = TrainStep(method_of(config), config.train, steps=STEPS, sparse=False)
    rates, counts = [], []
    for step in range(6):
        rates.append(train_step(batch_of(step), step).lr)
        counts.append(int(train_step.optimisers[0].state()["steps"]))
    assert rates == pytest.approx([0.01] * 4 + [0.002] * 2)
    assert counts == [1, 2, 3, 4, 1, 2]
    assert train_step.method.phase == 1


EXACT: dict[str, object] = {
    "dc": 0.7,
    "alpha": 0.5,
    "gamma": 0.9,
    "trace": 0.0,
    "dueling": False,
    "loss": "full",
    "xi": "all",
    "explorers": 0,
    "rank_by": "policy",
}


@pytest.mark.parametrize(
    "critic", [{"critic": "separate"}, {"critic": "shared", "critic_grad": 0.0}, {"critic": "shared"}]
)
def test_in_turn_the_actor_follows_the_critic_that_has_moved(critic: dict[str, object]) -> None:
    """Against two of torch's Adams, each with its losses, the actor's computed after the critic's step."""
    settings = {"lr": 0.005, "weight_decay": 0.01, "clip": 0.0}
    config = config_of("ecoc", settings, optimise="in_turn", **EXACT, **critic)
    train_step = TrainStep(method_of(config), config.train, steps=STEPS, sparse=False)
    slow = method_of(config).train()
    named = dict(slow.named_parameters())
    of_critic = [p for name, p in named.items() if name.startswith("policy.critic.")]
    of_actor = [p for name, p in named.items() if not name.startswith("policy.critic.")]
    moves_actor = critic == {"critic": "shared"}
    betas = (config.train.beta1, config.train.beta2)
    first, second = (
        torch.optim.Adam(parameters, lr=0.0, betas=betas, weight_decay=0.01)
        for parameters in ([*of_critic, *of_actor] if moves_actor else of_critic, of_actor)
    )
    for step in range(3):
        for adam, names in ((first, ("td", "reg")), (second, ("bc", "dc"))):
            parts = slow.loss(batch_of(step)).parts
            torch.stack([parts[name] for name in names]).sum().backward()  # type: ignore[no-untyped-call]
            adam.param_groups[0]["lr"] = learning_rate(step, STEPS, config.train)
            adam.step()
            slow.zero_grad()
        for copy in slow.lagged.values():
            copy.update(step)
        result = train_step(batch_of(step), step)
        assert result.parts.keys() == {"td", "reg", "bc", "dc"}
        assert result.loss == pytest.approx(sum(result.parts.values()), rel=1e-5)
    for name, weight in weights(slow).items():
        torch.testing.assert_close(train_step.method.get_parameter(name).detach(), weight, atol=2e-5, rtol=1e-4)


def test_two_optimisers_are_saved_and_restored() -> None:
    config = config_of("ecoc", {}, optimise="in_turn", critic="separate", **EXACT)
    whole = taken(config, steps=range(4))
    half = taken(config, steps=range(2))
    restored = TrainStep(method_of(config), config.train, steps=STEPS, sparse=False)
    restored.load({name: tensor.clone() for name, tensor in half.state().items()}, 2)
    for step in range(2, 4):
        torch.manual_seed(step)
        restored(batch_of(step), step)
    assert restored.state().keys() == whole.state().keys()
    for name, tensor in whole.state().items():
        assert torch.equal(restored.state()[name], tensor), name


def test_a_result_holds_what_the_step_measured() -> None:
    config = config_of("ecoc", {})
    train_step = TrainStep(method_of(config), config.train, steps=STEPS, sparse=False)
    plain, watched = train_step(batch_of(0), 0), train_step(batch_of(1), 1, diagnostics=True)
    assert (plain.step, watched.step) == (1, 2)
    assert plain.transitions == ROWS * LENGTH
    assert plain.parts.keys() >= {"bc", "td"}
    assert plain.norm > 0
    assert plain.diagnostics == {}
    assert "q/logged" in watched.diagnostics


class _Broken:
    """Spoils the loss of a method: its total, a part, or only its gradient."""

    def __init__(self, method: Method, where: str, number: float) -> None:
        self.loss, self.where, self.number = method.loss, where, number

    def __call__(self, batch: Batch) -> Loss:
        loss = self.loss(batch)
        if self.where == "the loss":
            return Loss(loss.total * self.number, loss.parts)
        if self.where == "loss part 'bc'":
            return Loss(loss.total, {"bc": loss.parts["bc"] * self.number})
        loss.total.register_hook(lambda gradient: gradient * self.number)  # type: ignore[no-untyped-call]
        return loss


@pytest.fixture(params=[float("nan"), float("inf")])
def number(request: pytest.FixtureRequest) -> Iterator[float]:
    yield float(request.param)


@pytest.mark.parametrize("where", ["the loss", "loss part 'bc'", "the gradient"])
def test_what_is_not_finite_is_named_and_a_loss_moves_no_weight(where: str, number: float) -> None:
    config = config_of("supervised", {})
    method = method_of(config)
    train_step = TrainStep(method, config.train, steps=STEPS, sparse=False)
    before = weights(method)
    object.__setattr__(method, "loss", _Broken(method, where, number))
    with pytest.raises(DivergedError, match=f"^step 4: {where} is not finite") as raised:
        train_step(batch_of(3), 3)
    assert raised.value.quantity == where
    assert equal(weights(method), before) or where == "the gradient"


@pytest.mark.parametrize(
    ("method", "train", "options"),
    [
        ("ecoc", {}, {}),
        ("supervised", {"ema": 0.1}, {}),
        ("supervised", {"ema": 0.1, "table": "sparse"}, {"loss": "sampled", "n2": 4}),
    ],
)
def test_a_state_that_is_loaded_goes_on_bit_by_bit(method: str, train: dict[str, Any], options: Any) -> None:
    config = config_of(method, train, **options)
    sparse = train.get("table") == "sparse"
    whole = taken(config, sparse=sparse)
    half = {name: tensor.clone() for name, tensor in taken(config, sparse=sparse, steps=range(5)).state().items()}
    other = TrainStep(method_of(config), config.train, steps=STEPS, sparse=sparse)
    other.load(half, 5)
    for step in range(5, STEPS):
        torch.manual_seed(step)
        other(batch_of(step), step)
    assert equal(other.state(), whole.state())
    assert not equal(half, whole.state())


def test_a_method_with_a_lagged_policy_of_its_own_refuses_another_average() -> None:
    config = config_of("ecoc", {"ema": 0.1})
    with pytest.raises(InputError, match=r"train\.ema: this method averages its weights itself"):
        TrainStep(method_of(config), config.train, steps=STEPS, sparse=False)
