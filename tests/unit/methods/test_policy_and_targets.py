from typing import ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ecoc.batch import PAD, Batch, Dims, History, TrainSequences
from ecoc.encoders import ENCODERS, Encoder, EncoderConfig
from ecoc.errors import ArtifactError
from ecoc.methods import BuildContext
from ecoc.methods.supervised import Supervised
from ecoc.methods.targets import Targets
from ecoc.methods.untrained import MarkovPolicy
from ecoc.policies.base import TiedPolicy, load_weights
from ecoc.policies.ranking import Query
from ecoc.training.optimiser import Optimiser

ITEMS, DIM, LENGTH = 20, 8, 6
DIMS = Dims(ITEMS, 3, 2)


pytestmark = pytest.mark.usefixtures("one_thread")


def make_encoder(**options: object) -> Encoder:
    kind = ENCODERS["sasrec"]
    return kind(kind.Config.build({"dim": DIM, "length": LENGTH, **options}), DIMS)


def make_policy(seed: int = 0) -> TiedPolicy:
    torch.manual_seed(seed)
    return TiedPolicy(make_encoder(), init=0.5)


def history(*rows: list[int]) -> History:
    wide = max(len(row) for row in rows)
    return History(torch.tensor([row + [PAD] * (wide - len(row)) for row in rows]))


def sample_batch(seed: int) -> Batch:
    """Rows of several lengths; the first position of each has no target."""
    draw = torch.Generator().manual_seed(seed)
    inside = torch.arange(LENGTH) < torch.tensor([[2], [4], [LENGTH]])
    items = torch.randint(1, ITEMS + 1, (3, LENGTH + 1), generator=draw)
    target = (items[:, 1:] * inside).index_fill(1, torch.tensor([0]), PAD)
    wanted = (target != PAD).float()
    return Batch(History(items[:, :-1] * inside), target, wanted, torch.zeros_like(wanted))


class Doubling(Encoder):
    """An encoder whose item vectors are not the table's rows."""

    transforms_items: ClassVar[bool] = True
    calls = 0

    def items(self, table: Tensor) -> Tensor:
        self.calls += 1
        return 2 * table

    def forward(self, embedded: Tensor, history: History) -> Tensor:
        return embedded


def doubling_policy() -> tuple[TiedPolicy, Doubling]:
    encoder = Doubling(EncoderConfig(dim=DIM, length=LENGTH, dropout=0.0), DIMS)
    return TiedPolicy(encoder, init=0.5), encoder


def test_a_fresh_table_is_random_but_for_padding() -> None:
    policy = make_policy()
    assert policy.table.shape == (ITEMS + 1, DIM)
    assert not policy.table[PAD].any()
    assert 0.3 < policy.table[1:].std().item() < 0.7
    assert (policy.items, policy.length) == (ITEMS, LENGTH)


@pytest.mark.parametrize(
    ("form", "is_sparse"), [("full", False), ("sampled", False), ("bpr", False), ("sampled", True), ("bpr", True)]
)
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_the_padding_row_stays_zero_while_others_learn(form: str, is_sparse: bool, decay: float) -> None:
    torch.manual_seed(0)
    encoder = ENCODERS["sasrec"].Config.build({"dim": DIM, "length": LENGTH})
    method = Supervised(Supervised.Config.build({"loss": form, "n2": 30}), BuildContext(DIMS, encoder, make_encoder))
    assert method.sparse_parameters() == ({"policy.table"} if form != "full" else set())
    batches = [sample_batch(seed) for seed in range(6)]
    seen = torch.cat([batch.target[batch.target != PAD] for batch in batches]).numpy()
    method.fit_statistics(TrainSequences(seen, torch.tensor([0, len(seen)]).numpy()))
    method.policy.encoder.sparse = is_sparse
    optimiser = Optimiser(method, betas=(0.9, 0.98), decay=decay, sparse={"policy.table"} if is_sparse else set())
    before = method.policy.table.detach().clone()
    for batch in batches:
        loss = method.loss(batch)
        loss.total.backward()  # type: ignore[no-untyped-call]
        gradient = method.policy.table.grad
        assert gradient is not None
        assert gradient.is_sparse == is_sparse
        optimiser.step(0.05, 5.0)
        optimiser.zero()
        assert not method.policy.table[PAD].any()
    moved = (method.policy.table != before).any(1)
    assert moved.sum() == ITEMS  # 36 targets and 180 draws among 20 items reach them all
    assert not moved[PAD]


@pytest.mark.parametrize("is_sparse", [False, True])
def test_reading_padding_teaches_its_row_nothing(is_sparse: bool) -> None:
    policy = make_policy()
    policy.encoder.sparse = is_sparse
    found = policy.encoder.look_up(policy.item_vectors(), history([3, 3, 1], [2]))
    assert not found[1, 1:].any()
    found.sum().backward()  # type: ignore[no-untyped-call]
    gradient = policy.table.grad
    assert gradient is not None
    assert gradient.is_sparse == is_sparse
    touched = gradient.to_dense().any(1).nonzero().squeeze(1)
    assert touched.tolist() == [1, 2, 3]


def test_scores_of_items_are_the_scores_within_their_rounding() -> None:
    policy = make_policy().eval()
    query = Query(torch.randn(7, DIM))
    with torch.no_grad():
        everything = policy.scores(query, 0, ITEMS + 1)
        assert torch.allclose(everything, query.vector @ policy.table.T)
        assert torch.allclose(policy.scores(query, 3, 9), everything[:, 3:9])
        items = torch.randint(0, ITEMS + 1, (7, 11))
        found, slack = policy.scores_of(query, items)
    assert found.shape == slack.shape == (7, 11)
    assert ((found - everything.gather(1, items)).abs() <= slack).all()
    assert ((slack > 0) == (items != PAD)).all()
    assert (slack < 1e-4).all()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.integers(1, ITEMS), min_size=1, max_size=LENGTH), min_size=1, max_size=6))
def test_a_batch_is_answered_as_its_rows_one_by_one(rows: list[list[int]]) -> None:
    policy = make_policy().eval()
    with torch.no_grad():
        together = policy.query(history(*rows))
        assert together.vector.shape == (len(rows), DIM)
        for row, found in zip(rows, together.vector, strict=True):
            alone = history(row)
            assert torch.allclose(policy.query(alone).vector[0], found, atol=1e-5)
            assert torch.allclose(policy.states(alone)[0, -1], found, atol=1e-5)
        lists, _ = policy.topk(together, 5)
        for row, found in zip(rows, lists.tolist(), strict=True):
            assert policy.topk(policy.query(history(row)), 5)[0].tolist() == [found]


def test_what_is_imitated_is_each_successor() -> None:
    policy = make_policy().eval()
    batch = sample_batch(0)
    found = policy.encoder.prediction_task(policy.item_vectors(), batch)
    wanted = batch.target != PAD
    assert torch.equal(found.target, batch.target[wanted])
    assert torch.allclose(found.states, policy.states(batch.history)[wanted], atol=1e-6)
    assert len(found.target) == batch.transitions == 1 + 3 + 5


def test_item_vectors_are_the_table_unless_the_encoder_transforms_it() -> None:
    policy = make_policy()
    assert policy.item_vectors() is policy.table
    assert policy.eval().vectors() is policy.table
    other, _ = doubling_policy()
    assert torch.equal(other.vectors(), 2 * other.table)
    assert torch.allclose(other.scores(Query(torch.ones(1, DIM)), 1, 4), 2 * other.table[1:4].sum(1)[None])
    assert torch.allclose(other.scores_of(Query(torch.ones(1, DIM)), torch.tensor([[2]]))[0], 2 * other.table[2].sum())


def test_a_policy_at_rest_transforms_its_items_once_and_forgets_them_when_it_learns() -> None:
    policy, encoder = doubling_policy()
    policy.eval()
    query = policy.query(history([1, 2], [3]))
    policy.ranks(query, torch.tensor([1, 2]))
    policy.topk(query, 3)
    assert encoder.calls == 1
    assert not policy.vectors().requires_grad
    policy.train()
    assert policy.item_vectors().requires_grad
    with torch.no_grad():
        policy.table.add_(1)
    policy.eval()
    assert torch.equal(policy.vectors(), 2 * policy.table)
    assert torch.allclose(policy.scores(query, 1, 4), 2 * query.vector @ policy.table[1:4].T)


def test_weights_come_back() -> None:
    one, other = make_policy(0), make_policy(1)
    load_weights(other, one.state_dict(), where="here")
    for name, tensor in one.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor)
        assert other.state_dict()[name].data_ptr() == tensor.data_ptr(), "a table of gigabytes is not copied"
    assert all(p.requires_grad for p in other.parameters())
    rows = history([1, 2, 3], [4])
    assert torch.equal(one.eval().query(rows).vector, other.eval().query(rows).vector)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("table"), "here: tensor 'table' is missing; train again"),
        (lambda t: t.update(spare=torch.zeros(1)), "here: tensor 'spare' is foreign; train again"),
        (
            lambda t: t.update(table=t["table"].double()),
            rf"tensor 'table' is torch.float64 \[21, 8\], expected torch.float32 \[{ITEMS + 1}, {DIM}\]",
        ),
        (
            lambda t: t.update(table=t["table"][:-1]),
            r"'table' is torch.float32 \[20, 8\], expected .* \[21, 8\]",
        ),
        (lambda t: t.update(table=t["table"].T), r"\[8, 21\], expected"),
        (lambda t: t.update(table=torch.zeros(())), r"\[\], expected"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(change: object, message: str) -> None:
    policy = make_policy()
    tensors = dict(make_policy(1).state_dict())
    assert callable(change)
    change(tensors)
    with pytest.raises(ArtifactError, match=message):
        load_weights(policy, tensors, where="here")


def test_buffers_that_are_made_empty_may_have_any_size_but_not_any_type() -> None:
    policy = MarkovPolicy(3, LENGTH)
    followers, times = torch.tensor([2, 3, 1]), torch.tensor([1.0, 4.0, 2.0])
    starts = torch.tensor([0, 0, 2, 3, 3])
    saved = {"share": torch.rand(4), "starts": starts, "followers": followers, "times": times}
    load_weights(policy, saved, where="here")
    assert torch.equal(policy.followers, followers)
    assert set(policy.state_dict()) == set(saved)  # they are buffers still
    with pytest.raises(ArtifactError, match=r"tensor 'followers' is torch\.int32"):
        load_weights(policy, {**saved, "followers": followers.int()}, where="here")
    with pytest.raises(ArtifactError, match=r"tensor 'share' is torch\.float32 \[9\], expected torch\.float32 \[4\]"):
        load_weights(policy, {**saved, "share": torch.rand(9)}, where="here")
    with pytest.raises(ArtifactError, match="contradict one another"):
        load_weights(policy, {**saved, "followers": followers + 9}, where="here")


def test_buffers_inside_the_encoder_are_found() -> None:
    policy, encoder = doubling_policy()
    encoder.register_buffer("seen", torch.zeros(0))
    load_weights(policy, {"table": policy.table.detach() + 1, "encoder.seen": torch.ones(5)}, where="here")
    assert torch.equal(policy.state_dict()["encoder.seen"], torch.ones(5))


def net(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2))


def shift(module: nn.Module, by: float) -> None:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(by)


def test_a_target_begins_as_a_copy_of_its_own() -> None:
    module = net(0)
    targets = Targets(module, tau=0.1)
    shift(module, 1.0)
    for mine, theirs in zip(targets.copy.parameters(), module.parameters(), strict=True):
        assert torch.allclose(mine + 1, theirs)


@pytest.mark.parametrize("step", [0, 1, 91, 10**6])
def test_a_rate_of_one_copies(step: int) -> None:
    module = net(0)
    targets = Targets(module, tau=1.0)
    shift(module, 1.7)
    targets.update(step)
    for mine, theirs in zip(targets.copy.parameters(), module.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("tau", [0.0, 0.005, 0.05, 0.5])
def test_a_target_follows_by_its_rate_and_faster_early_on(tau: float) -> None:
    module = net(0)
    targets = Targets(module, tau)
    expected = [p.detach().double().clone() for p in module.parameters()]
    for step in [*range(30), 500, 10**9]:
        shift(module, 0.3)
        targets.update(step)
        rate = max(tau, 1 / (step + 9)) if tau else 0.0
        for mine, hoped, theirs in zip(targets.copy.parameters(), expected, module.parameters(), strict=True):
            hoped.lerp_(theirs.detach().double(), rate)
            assert torch.allclose(mine.double(), hoped, rtol=1e-4, atol=1e-5)


def test_a_target_is_at_rest_whatever_its_module_does() -> None:
    module = net(0)
    targets = Targets(module.train(), tau=0.5)
    for step in range(3):
        assert not any(part.training for part in targets.copy.modules())
        assert not any(p.requires_grad for p in targets.copy.parameters())
        targets.copy.train()  # someone's mistake
        targets.update(step)
    assert module.training
    assert all(p.requires_grad for p in module.parameters())


def test_a_target_forgets_what_it_derived_from_old_weights() -> None:
    policy, _ = doubling_policy()
    targets = Targets(policy, tau=0.5)
    assert torch.equal(targets.copy.vectors(), 2 * targets.copy.table)
    shift(policy, 1.0)
    targets.update(0)
    assert torch.equal(targets.copy.vectors(), 2 * targets.copy.table)
    assert torch.allclose(targets.copy.vectors() + 1, 2 * policy.table)


def test_a_saved_target_goes_on_as_if_it_had_not_been() -> None:
    module = net(0)
    one, other = Targets(module, tau=0.01), Targets(net(1), tau=0.01)
    shift(module, 1.0)
    one.update(0)
    resumed = Targets(module, tau=0.01)
    saved = {name: tensor.clone() for name, tensor in one.state().items()}
    for targets in (other, resumed):
        targets.load(saved, 1)
        assert all(torch.equal(targets.state()[name], tensor) for name, tensor in saved.items())
        assert not any(p.requires_grad for p in targets.copy.parameters())
    shift(module, -0.4)
    for targets in (one, resumed):
        targets.update(1)
    assert all(torch.equal(resumed.state()[name], tensor) for name, tensor in one.state().items())
    assert not all(torch.equal(resumed.state()[name], tensor) for name, tensor in saved.items())
