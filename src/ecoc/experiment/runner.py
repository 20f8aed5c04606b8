"""From a plan to results: time the methods, fit the plan into the budget, compute cell after cell."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ecoc.experiment.context import Context, Experiment
from ecoc.experiment.cost import StepCost
from ecoc.experiment.jobs import Cell, Clock, JobResult, in_order, run_cells
from ecoc.experiment.plan import SHARE, Plan, Plans, fit, readable, trimmings
from ecoc.experiment.variants import variant_of
from ecoc.progress import ProgressCallback

Say = Callable[[str], None]
_SHOWN = "ndcg@10"
_TIMING = 0.2  # of a budget may be spent on timing; what is not timed by then counts as the slowest that was


@dataclass(frozen=True)
class Runner:
    """Where a call is worked on: its clock, who watches and who is told."""

    clock: Clock
    watch: ProgressCallback
    say: Say

    def planned(self, context: Context, chosen: Sequence[Experiment], common: Mapping[str, str]) -> Context:
        """The context with the plan of an earlier call that asked the same, or with a new one."""
        self._time_steps(context, chosen)
        plans, key = Plans(context.out), {**context.asked.values(), **common}
        plan = plans.load(key)
        if plan is None:
            plan = self._plan(context, chosen)
            plans.save(key, plan)
        context = replace(context, plan=plan)
        self._announce(context, chosen)
        return context

    def work(self, context: Context, experiment: Experiment) -> dict[str, JobResult]:
        """The cells of one experiment."""
        cells = cells_of(context, [experiment])
        numbers = {cell.name: number for number, cell in enumerate(cells, 1)}

        def tell(cell: Cell, found: JobResult, is_new: bool) -> None:
            if is_new:
                self.say(f"[{numbers[cell.name]}/{len(cells)}] {cell.name}: {_outcome(found)}")

        return run_cells(cells, context.store, self.clock, self.watch, tell)

    def _plan(self, context: Context, chosen: Sequence[Experiment]) -> Plan:
        budget = context.asked.budget
        highest = max((cell.rank for one in chosen for cell in one.cells(context)), default=0)
        asked = replace(context.plan, rank=highest)

        def cost(plan: Plan) -> float:
            return sum(cell.seconds for cell in cells_of(replace(context, plan=plan), chosen))

        if budget is None:
            return replace(asked, seconds=cost(asked))
        plan = fit(asked, cost, SHARE * budget - self.clock.spent)
        kept = {cell.name for cell in cells_of(replace(context, plan=plan), chosen)}
        whole = cells_of(replace(context, plan=replace(plan, rank=asked.rank)), chosen)
        left_out = sorted({f"{cell.method} ({cell.encoder})" for cell in whole if cell.name not in kept})
        return replace(plan, trimmed=trimmings(asked, plan, budget, left_out))

    def _time_steps(self, context: Context, chosen: Sequence[Experiment]) -> None:
        """Time each variant and encoder for a few steps; kept as a cell, so a later call plans by the same pace."""
        wanted = sorted({cell.paced for one in chosen for cell in one.cells(context) if cell.paced is not None})
        cells = {key: context.pace_cell(variant_of(key[0]), key[1]) for key in wanted}
        missing = sum(not _is_done(context, cell) for cell in cells.values())
        if not cells:
            return
        if missing:
            self.say(f"timing a few training steps of {missing} methods with their encoders")
        first, *others = cells.values()  # one at least is timed, or there were nothing to plan by
        results = run_cells([first], context.store, self.clock, self.watch, _untold)
        results |= run_cells(others, context.store, self.clock.part(_TIMING), self.watch, _untold)
        for key, cell in cells.items():
            if results[cell.name].is_done:
                context.paces[key] = StepCost.of(results[cell.name].facts)

    def _announce(self, context: Context, chosen: Sequence[Experiment]) -> None:
        plan, cells = context.plan, cells_of(context, chosen)
        left = [cell for cell in cells if not _is_done(context, cell)]
        there = f", {len(cells) - len(left)} of them there already" if len(left) < len(cells) else ""
        self.say(
            f"{context.asked.experiment}: {len(cells)} cells{there}; {plan.steps:,} training steps a run, {plan.seeds}"
            f" seed{'s' * (plan.seeds > 1)}; about {readable(sum(cell.seconds for cell in left))} on this machine"
        )
        for text in plan.trimmed:
            self.say(f"trimmed: {text}")


def cells_of(context: Context, chosen: Sequence[Experiment]) -> list[Cell]:
    """The cells of some experiments under a plan, each once, in order."""
    return in_order(cell for one in chosen for cell in one.cells(context) if cell.rank <= context.plan.rank)


def _is_done(context: Context, cell: Cell) -> bool:
    found = context.store.load(cell)
    return found is not None and found.is_done


def _untold(cell: Cell, found: JobResult, is_new: bool) -> None:
    """Nobody is told."""


def _outcome(found: JobResult) -> str:
    if not found.is_done:
        return found.message if found.status == "not run" else f"failed: {found.message}"
    views = found.facts.get("views", {})
    shown = [f"{title} {one['metrics'][_SHOWN]:.4f}" for title, one in views.items() if "metrics" in one]
    shown += [f"{title} {one['reward']:.3f}" for title, one in views.items() if "reward" in one]
    said = "; ".join(shown) or str(found.facts.get("stopped", "done"))
    return f"{said} ({readable(found.seconds)})"
