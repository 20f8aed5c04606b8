"""What speaks against trusting a simulated figure: support, dispute, simulators without skill, imitation loss."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from simulate_case import SMALL, hasty, played, rows, simulated_runs
from torch import Tensor

import ecoc
from ecoc.batch import History
from ecoc.data.loader import open_cases
from ecoc.model import load
from ecoc.ope import evaluator as evaluator_module
from ecoc.ope import simulate as simulate_module
from ecoc.ope.results import SimulatorQuality
from ecoc.ope.rollout import Rollouts
from ecoc.ope.simulate import simulate
from ecoc.ope.trust import (
    ImitationLoss,
    UsualBehaviour,
    imitation_losses,
    simulator_warnings,
    support_warnings,
    usual_behaviour,
)
from ecoc.policies.base import Policy
from ecoc.policies.ranking import Query

USUAL = UsualBehaviour(action=-5.0, session=-4.0)
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True, scope="module")
def few_steps() -> Iterator[None]:
    with hasty():
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulated_runs(tmp_path_factory.getbasetemp())


def test_what_the_log_hardly_shows_is_pointed_out() -> None:
    rare = played([[-1, -1, -1, -6], [-1, -1, -1, -1]])
    assert support_warnings(rare, USUAL) == [], "one in eight is fewer than a fifth"
    often = played([[-1, -1, -6, -6], [-1, -1, -1, -1]])
    assert support_warnings(often, USUAL) == ["25% of its actions are rare in the log at such states"]


def test_sessions_unlike_any_logged_one_are_pointed_out() -> None:
    odd = played([[-4.9] * 4, [-1] * 4, [-1] * 4])
    assert support_warnings(odd, USUAL) == ["33% of its sessions are unlike any logged session"]
    some = played([[-4.9] * 4, *([[-1.0] * 4] * 5)])
    assert support_warnings(some, USUAL) == []


def test_what_the_simulators_dispute_is_pointed_out() -> None:
    agreed, disputed = played([[-1.0]], 1.0, 0.19), played([[-1.0]], 1.0, 0.21)
    assert support_warnings(agreed, USUAL) == []
    assert support_warnings(disputed, USUAL) == ["the simulators disagree about 21% of its reward"]
    assert support_warnings(played([[-1.0]], -1.0, 0.19), USUAL) == []
    assert support_warnings(played([[-1.0]], 0.0, 0.1), USUAL) == ["the simulators disagree about 100% of its reward"]


def test_nobody_disputes_nothing() -> None:
    assert support_warnings(played([[-1.0]], 0.0, 0.0), USUAL) == []


def test_steps_after_the_end_are_not_looked_at() -> None:
    logs, counted = np.array([[[-1.0, -9.0], [-1.0, -1.0]]]), np.array([[True, False], [True, True]])
    ensemble_std = np.array([[[0.0, 9.0], [0.0, 0.0]]])
    found = Rollouts(np.ones((1, 2, 2)), ensemble_std, logs, np.ones((1, 2, 2), np.int64), counted)
    assert support_warnings(found, USUAL) == []


def test_the_log_s_own_rarest_per_cent_is_what_counts_as_rare() -> None:
    logs = -np.arange(1.0, 1001).reshape(1, 100, 10)
    log = Rollouts(logs * 0, logs * 0, logs, np.ones_like(logs, np.int64), np.ones((100, 10), bool))
    usual = usual_behaviour(log)
    assert (logs < usual.action).mean() == pytest.approx(0.01)
    assert (logs.mean(2) < usual.session).mean() == pytest.approx(0.01)


class Scored(Policy):
    """The same scores for everyone."""

    def __init__(self, score: Tensor) -> None:
        super().__init__()
        self.items, self.length, self.score = len(score) - 1, 4, score

    def query(self, history: History) -> Query:
        return Query(torch.zeros(len(history.items), 1))

    def scores(self, query: Query, first: int, last: int) -> Tensor:
        return self.score[first:last].expand(len(query), -1)

    def scores_of(self, query: Query, items: Tensor) -> tuple[Tensor, Tensor]:
        return self.score[items], torch.zeros_like(items, dtype=torch.float32)

    def vectors(self) -> Tensor | None:
        return None


def test_what_a_run_unlearnt_shows_in_its_imitation_loss(made: Path) -> None:
    data = ecoc.open_data(made / "data")
    cases = open_cases(data, "validation", min_history=1, most=2000, seed=0)
    target = np.asarray(data.items[cases.event])
    known = np.bincount(target, minlength=data.counts.items + 1) + 0.5
    share = torch.from_numpy(known / known[1:].sum()).log().float()
    found = imitation_losses(data, {"knows": Scored(share), "sharper": Scored(share * 3), "none": Scored(share * 0)})
    right = float(-share[torch.from_numpy(target.astype(np.int64))].mean())
    assert found["knows"].loss == pytest.approx(right, rel=0.01)
    assert found["sharper"].loss == pytest.approx(found["knows"].loss, rel=0.01), "at its best temperature"
    assert found["none"].loss == pytest.approx(math.log(data.counts.items), rel=1e-4)
    best = min(row.loss for row in found.values())
    assert all(row.excess == pytest.approx(row.loss / best - 1) for row in found.values())
    assert found["none"].excess > 0.03


def test_a_critic_s_run_is_judged_by_its_cloned_policy(made: Path) -> None:
    data, model = ecoc.open_data(made / "data"), load(made / "ecoc")
    found = imitation_losses(
        data, {"blend": model.ranked_by("blend", w=50).policy, "plain": model.ranked_by("policy").policy}
    )
    assert found["blend"] == found["plain"]


def test_simulators_that_learnt_nothing_speak_against_every_figure() -> None:
    def found(log_loss: float, of_shares: float = 0.90, events: float = 50.0, refused: float = 0.05) -> list[str]:
        quality = SimulatorQuality(
            fit_on="log",
            members=1,
            negatives=0,
            events=100,
            log_loss=log_loss,
            log_loss_of_shares=of_shares,
            calibration_error=0.0,
            reward_error=0.0,
            temperature=1.0,
            events_per_item=events,
            refused=refused,
        )
        return simulator_warnings(quality)

    assert found(0.80) == []
    assert found(0.86) == ["the simulators predict feedback hardly better than its overall shares do"]
    assert found(0.0, 0.0) == []
    assert found(0.80, events=49.9) == ["the log has 49.9 events per item; simulators need 50"]
    assert found(0.80, refused=0.049) == ["only 4.9% of logged events are refusals; simulators need 5%"]
    assert len(found(0.86, events=3, refused=0.0)) == 3


def test_a_run_that_imitates_badly_is_not_trusted(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = {"supervised": ImitationLoss(2.0, 0.031), "ecoc": ImitationLoss(1.9, 0.029)}
    monkeypatch.setattr(simulate_module, "imitation_losses", lambda *_: losses)
    monkeypatch.setattr(evaluator_module, "support_warnings", lambda *_: ["something"])
    monkeypatch.setattr(evaluator_module, "simulator_warnings", lambda *_: [])
    found = rows(simulate([made / "supervised", made / "ecoc"], config=replace(SMALL, members=1)))
    assert found["supervised"].reasons == ["something", "imitates the log 3.1% worse than the best run"]
    assert not found["supervised"].trusted
    assert found["supervised"].imitation_loss == 2.0
    assert found["ecoc"].reasons == ["something"]
    assert found["logged"].reasons == []
