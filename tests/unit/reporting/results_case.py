"""Results of evaluate, compare, simulate, choose_weight and normtest, made by hand."""

from typing import Any, Literal

from ecoc.evaluation.metrics import NAMES
from ecoc.evaluation.results import (
    Baseline,
    Comparison,
    CosineAtRank,
    EvaluationResult,
    NormTestControl,
    NormTestResult,
    NormTestRow,
    PairedDifference,
    RankedPolicy,
    Subset,
)
from ecoc.ope.results import (
    EstimatorValue,
    OneStepRatio,
    PolicyValue,
    RolloutConfig,
    SimulationResult,
    SimulatorQuality,
    WeightChoice,
    WeightPoint,
)

UNTRAINED = {"popular": 0.05, "recent": 0.03, "markov": 0.08}
LISTS = {"coverage": 0.85, "popularity_lift": 0.25, "diversity": 0.79}
QUALITY = SimulatorQuality(
    fit_on="log", members=3, negatives=0, events=950, log_loss=0.5, log_loss_of_shares=0.6, calibration_error=0.03,
    reward_error=0.04, temperature=1.0, events_per_item=100, refused=0.3,
)  # fmt: skip


def metrics(level: float) -> dict[str, float]:
    return {name: level * (1 + 0.1 * place) for place, name in enumerate(NAMES)}


def evaluation(run: str = "runs/ecoc", mode: str = "blend-w10") -> EvaluationResult:
    parts = {"seen": Subset(cases=0, metrics=None), "new": Subset(cases=3800, metrics=metrics(0.1))}
    untrained = [
        Baseline(name=name, ranking_mode="policy", metrics=metrics(level), **LISTS, **parts)
        for name, level in UNTRAINED.items()
    ]
    return EvaluationResult(
        run=run, data="data", split="test", cases=3800, users=200, items=200, exclude_seen=False, ranking_mode=mode,
        metrics=metrics(0.1), intervals=dict.fromkeys(NAMES, (0.09, 0.11)), untrained=untrained, seconds=1.0,
        **LISTS, **parts,
    )  # fmt: skip


def comparison(*names: str) -> Comparison:
    levels = {name: 0.1 + 0.01 * place for place, name in enumerate(names or ("supervised", "ecoc"))}
    policies = {**levels, **UNTRAINED}
    runs = [
        RankedPolicy(
            name=name,
            ranking_mode="blend-w10" if name == "ecoc" else "policy",
            metrics=metrics(level),
            **LISTS,
        )
        for name, level in policies.items()
    ]
    pairs = [
        PairedDifference(
            a=a,
            b=b,
            metric=metric,
            difference=policies[a] - policies[b],
            low=policies[a] - policies[b] - 0.01,
            high=policies[a] - policies[b] + 0.01,
            p=0.001,
            p_holm=0.01 if b == "popular" else 0.2,
        )
        for place, a in enumerate(levels)
        for b in list(policies)[place + 1 :]
        for metric in ("hr@10", "mrr@10", "ndcg@10")
    ]
    return Comparison(data="data", split="test", cases=3800, users=200, runs=runs, pairs=pairs)


def policy_value(name: str, ratio: float, one_step: float, reasons: list[str]) -> PolicyValue:
    kind: Literal["control", "run"] = "control" if name in ("logged", "random", "popular", "best item") else "run"
    return PolicyValue(
        name=name, kind=kind, ranking_mode="policy", reward=ratio / 2, ratio=ratio, low=ratio - 0.1, high=ratio + 0.1,
        unpenalised=ratio / 2 + 0.05, ensemble_std=0.1, items_shown=7, reasons=reasons, trusted=not reasons,
        uncertainty_penalty=0.05, rare_actions=0.0,
        one_step={"conditional": OneStepRatio(ratio=one_step, low=one_step, high=one_step)},
    )  # fmt: skip


def simulation(
    reasons: dict[str, list[str]] | None = None, common: tuple[str, ...] = (), ratios: dict[str, float] | None = None
) -> SimulationResult:
    """Policies good, fair and poor, or others; `poor` was never seen."""
    reasons = {"poor": ["it was never seen"], **(reasons or {})}
    values = {"logged": 1.0, "good": 2.2, "fair": 1.3, "poor": 0.5, **(ratios or {})}
    policies = [
        policy_value(name, ratio, 3 - ratio if name != "logged" else 1.0, [*common, *reasons.get(name, [])])
        for name, ratio in values.items()
    ]
    estimators = [
        EstimatorValue(
            policy=name, of=of, estimator=estimator, value=value, low=value, high=value, ess=value, ratio=value
        )
        for name in values
        for of in ("one decision", "5% of decisions")
        for estimator in ("ips", "wis", "dr")
        for value in [None if name == "poor" else 0.5]
    ]
    return SimulationResult(
        data="data", settings=RolloutConfig(penalty=1.0), exclude_seen=True, simulator=QUALITY, reasons=list(common),
        one_step_simulator={"conditional": QUALITY}, logged_reward=0.5, decisions=100, starts=5, steps=17.0,
        policies=policies, estimators=estimators, seconds=1.0,
    )  # fmt: skip


def weight_choice(w: float | None = 5.0, run: str = "runs/ecoc") -> WeightChoice:
    points = [
        WeightPoint(
            w=weight, ndcg=0.14 - 0.002 * weight, reward=0.5 + 0.03 * weight, ratio=1 + 0.05 * weight,
            low=0.9 + 0.05 * weight, high=1.1 + 0.05 * weight, unpenalised=0.6, ensemble_std=0.1, items_shown=150,
            trusted=weight < 50,
            reasons=["60% of its sessions are unlike any logged one"] * (weight == 50),
        )
        for weight in (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
    ]  # fmt: skip
    reasons = [] if w is not None else ["too few events"]
    return WeightChoice(
        run=run, data="data", w=w, reasons=reasons, points=points, simulator=QUALITY, settings=RolloutConfig()
    )


def norm_test(encoder: str = "sasrec") -> NormTestResult:
    common: dict[str, Any] = {
        "run": "runs/a", "method": "supervised", "encoder": encoder, "data": "data", "source": "world", "distinct": 300,
        "clipped": 0, "dropped": 0, "items": 200, "norm_log_sd": 0.1, "mean": 2.1, "std": 0.1, "t": 300.0, "p": 0.0,
        "p_two_sided": 0.0, "effect": 21.0, "n": 300, "repeats": 2, "flag": "",
    }  # fmt: skip
    cosines = [CosineAtRank(k=k, cosine=0.5 - 0.001 * k, count=10 * k) for k in (1, 5, 10, 20, 50, 100, 200)]
    controls = [NormTestControl(**{**common, "effect": 9.0}, norms=norms) for norms in ("trained", "untrained")]
    return NormTestResult(
        rows=[NormTestRow(**common, cosine_by_rank=cosines)], control=controls[0], controls=controls,
        cosine_by_rank=cosines, samples=300, repeats=2, max_items=0, seed=0,
    )  # fmt: skip
