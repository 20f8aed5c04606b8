"""What policies would earn, estimated from the log: the results of `ecoc.simulate`, of one seed or of several."""

from collections.abc import Mapping, Sequence

from ecoc.ope.results import SimulationResult, SimulatorQuality
from ecoc.ope.seeds import PolicyEstimate, over_seeds
from ecoc.reporting.document import Axis, Cell, Figure, Head, Number, Section, Table

CAVEATS = (
    "The simulators know only what the log shows. If the logging policy used information that is not in the log, they"
    " credit the items with its effect, and every estimate is too high; ranks suffer less than levels.",
    "The one-step ratio estimates what a single recommendation at a logged state earns. It favours items that pay now"
    " and cost later; in the built-in worlds its ranking is unrelated to the truth, or reversed (see ecoc reproduce"
    " ope-truth).",
    "Estimates marked as not trusted depend on states, items or refusals that the log hardly contains; do not choose a"
    " policy by them.",
)
_LONGEST = 20_000


def explained(simulation: SimulationResult) -> list[str]:
    """How the estimates were made, and how good the simulators are."""
    quality, settings = simulation.simulator, simulation.settings
    return [
        "Each policy is rolled out step by step, from logged test histories, in an ensemble of user simulators fitted"
        " on the log. The log's own policy, estimated, is rolled out in the same simulators; its reward is 1. The"
        f" penalty is {settings.penalty:g} × (ensemble disagreement on the policy's steps − disagreement on logged"
        " steps).",
        quality_text(quality),
    ]


def quality_text(quality: SimulatorQuality) -> str:
    """How well the simulators predict held-out events."""
    return (
        f"The simulators on {quality.events:,} held-out events: log-loss {quality.log_loss:.4f} (feedback shares"
        f" alone: {quality.log_loss_of_shares:.4f}), calibration error {quality.calibration_error:.4f}, reward"
        f" error {quality.reward_error:+.1%}."
    )


def reward_table(
    simulations: Sequence[SimulationResult], earned: Mapping[str, Sequence[float]], *, name: str, title: str
) -> Table:
    """One row per policy; `simulations` are of one seed each, `earned` the true rewards of each seed, if known."""
    estimates, common = over_seeds(simulations, earned), _common(simulations)
    heads: list[Head] = ["policy", ("roll-out, log = 1", 3, "high"), "trusted", ("without penalty", 3)]
    heads += [("one-step ratio (paper)", 3), ("items shown", 0)]
    heads += [("true reward per step", 3, "high")] * bool(earned)
    rows = [
        [
            estimate.name,
            _ratio(estimate),
            "no" if estimate.reasons else "reference" if estimate.is_reference else "yes",
            estimate.unpenalised,
            estimate.one_step,
            estimate.items_shown,
            *[None if estimate.truth is None else Number(value=estimate.truth, sd=estimate.truth_sd)] * bool(earned),
        ]
        for estimate in estimates
    ]
    first, seeds = simulations[0], f" and {len(simulations)} seeds" if len(simulations) > 1 else ""
    note = [f"{first.starts:,} users, {first.steps:.1f} steps each; intervals over users and simulators{seeds}."]
    note += [f"No figure can be trusted: {'; '.join(common)}."] * bool(common)
    own = {estimate.name: [reason for reason in estimate.reasons if reason not in common] for estimate in estimates}
    doubts = [f"{policy}: {'; '.join(reasons)}." for policy, reasons in own.items() if reasons]
    note += ["Not trusted:", *doubts] if doubts else []
    return Table.of(name, title, heads, rows, note=" ".join(note)[:_LONGEST])


def _common(simulations: Sequence[SimulationResult]) -> list[str]:
    """Why no figure can be trusted."""
    return list(dict.fromkeys(reason for simulation in simulations for reason in simulation.reasons))


def _ratio(estimate: PolicyEstimate) -> Number:
    return Number(value=estimate.ratio, low=estimate.low, high=estimate.high, is_compared=not estimate.reasons)


def estimators_table(simulation: SimulationResult) -> Table:
    """Estimates by importance weighting of logged decisions."""
    rows: list[list[Cell | float]] = []
    for estimator in simulation.estimators:
        value: Cell = "no logged decision agrees"
        if estimator.value is not None:
            value = Number(value=estimator.value, low=estimator.low, high=estimator.high)
        rows.append([estimator.of, estimator.estimator, value, estimator.ess])
    heads: list[Head] = ["of", "estimator", ("reward per step", 3), ("effective sample size", 0)]
    groups = [estimator.policy for estimator in simulation.estimators]
    mix = f"{simulation.settings.mix:.0%}"
    note = f"Weights are estimated propensities: of one decision, or of sessions with {mix} of the policy's decisions."
    return Table.of("estimators", "Importance weighting", heads, rows, groups=groups, note=note)


def reward_finding(simulations: Sequence[SimulationResult], title: str) -> str:
    """What the roll-outs say of the learned policies, the best that can be trusted first."""
    learned = [estimate for estimate in over_seeds(simulations) if estimate.is_learned]
    trusted = sorted((estimate for estimate in learned if not estimate.reasons), key=lambda estimate: -estimate.ratio)
    if not trusted:
        common = _common(simulations)
        return f"{title}: no figure of a learned policy can be trusted{': ' * bool(common)}{'; '.join(common)}."
    first, *others = trusted
    rest = "".join(f"; {estimate.name} {estimate.ratio:.2f}" for estimate in others[:3])
    return f"{title}: {first.name} earns {first.ratio:.2f} times what the log's policy earns, by roll-outs{rest}."


def reward_figures(simulations: Sequence[SimulationResult], *, name: str, title: str) -> list[Figure]:
    """Bars of the roll-out and of the paper's ratio, with the log as a line at 1."""
    estimates = [estimate for estimate in over_seeds(simulations) if not estimate.is_reference]
    common, doubted = _common(simulations), ", ".join(estimate.name for estimate in estimates if estimate.reasons)
    note = f"Not to be trusted: {doubted}." if doubted else ""
    note = f"No figure can be trusted: {'; '.join(common)}." if common else note
    ratios = [("", estimate.name, _ratio(estimate)) for estimate in estimates]
    one_step = [("", estimate.name, Number(value=estimate.one_step)) for estimate in estimates]
    rollout_axis = Axis(label="roll-out reward, log = 1", line=1.0)
    one_step_axis = Axis(label="one-step ratio, log = 1", line=1.0)
    return [
        Figure.bars(f"{name}-rollout", f"Roll-out reward{title}", "policy", rollout_axis, ratios, note),
        Figure.bars(f"{name}-one-step", f"One-step reward ratio{title}", "policy", one_step_axis, one_step),
    ]


def simulation_section(simulation: SimulationResult) -> Section:
    """The section of a simulation of runs."""
    return Section(
        id="simulation",
        title="Reward that the policies would earn, estimated from the log",
        findings=[reward_finding([simulation], "Reward")],
        text=[reward_finding([simulation], "Result"), *explained(simulation)],
        tables=[
            reward_table([simulation], {}, name="simulation", title="Roll-outs and the one-step ratio"),
            estimators_table(simulation),
        ],
        figures=reward_figures([simulation], name="simulation", title=""),
        caveats=list(CAVEATS),
    )
