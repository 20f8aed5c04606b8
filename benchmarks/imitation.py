"""Next-item ranking of every method on one dataset: the same steps on the same windows, best weights by validation.

    python benchmarks/imitation.py ml -o runs --encoders sasrec,nextitnet --steps 1000 --seeds 3

One thread. Averaged weights (rate .02) are judged beside the online ones for every method but plain `supervised`;
validation chooses. ECoC's default setting is one run judged twice: as the cloned policy (w = 0), which by construction
is supervised+EMA, and by the blend (w = 10); `ecoc-paper` has the losses of preset `paper`, with the encoder and the
schedule of all others (softmax in place of BPR where the catalogue is smaller than its 10,000 negatives). Differences
from supervised+EMA are paired over the cases of all seeds, p-values bootstrapped over users and Holm-corrected within a
table. s/epoch is processor time of training steps alone. A run that is there is not trained again. Prints Markdown.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ecoc
from ecoc.data.sequences import Dataset
from ecoc.evaluation.evaluate import Bench, Options
from ecoc.evaluation.judge import is_seen
from ecoc.evaluation.metrics import means, metrics
from ecoc.evaluation.statistics import holm, paired
from ecoc.run import open_preset
from train import step_seconds

TAU = 0.02
METRICS = [f"{name}@{k}" for name in ("hr", "mrr", "ndcg") for k in (5, 10, 20)]
_PACE_STEPS = 5
_VALIDATIONS = 5


def settings(name: str, encoder: str, items: int) -> dict[str, Any]:
    """Sections of a run's config."""
    method: dict[str, Any] = {"name": name.partition("-")[0].replace("+", "")}
    train: dict[str, Any] = {}
    if name == "ecoc-paper":
        method |= open_preset("paper", encoder=encoder, method="ecoc")["method"]
        train["reward_scale"] = "none"  # what the paper's alpha is meant for
        if items <= method["n2"]:
            method |= {"loss": "full", "n2": 0}
    if name == "supervised+ema":
        method["name"] = "supervised"
    if name not in ("supervised", "ecoc", "ecoc-paper"):
        train["ema"] = TAU
    return {"encoder": {"name": encoder}, "method": method, "train": train}


def trained(data: Dataset, path: Path, values: dict[str, Any], seed: int, steps: int) -> dict[str, Any]:
    """Train, or find what an earlier call did."""
    kept = path / "benchmark.json"
    if kept.is_file():
        return dict(json.loads(kept.read_text()))
    pace, _ = step_seconds(data, values, _PACE_STEPS) if seed == 0 else (0.0, 0.0)
    train = {
        "max_steps": steps,
        "validate_every": -(-steps // _VALIDATIONS),
        "validation_cases": 1000,
        "patience": 0,
        "threads": 1,
        "seed": seed,
        "checkpoint_seconds": 1e9,
    }
    config = {**values, "train": {**train, **values["train"]}}
    result = ecoc.train(data, path, config=config, resume=path.exists()).result()
    facts = {"epochs": result["epochs"], "epoch_seconds": pace * result["steps"] / result["epochs"]}
    kept.write_text(json.dumps(facts))
    return facts


def judged(bench: Bench, path: Path, rank_by: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Ranks of a run on the cases of the bench."""
    kept = path / f"ranks-{rank_by}-{len(bench.cases)}.npy"
    if not kept.is_file():
        model = ecoc.load(path)
        model = model.by(rank_by) if model.policy.has_critic else model  # type: ignore[arg-type]
        np.save(kept, bench.judge(path.name, model.policy).ranks)
    return np.asarray(np.load(kept))


def rows(data: Dataset, bench: Bench, encoder: str, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Every method of one encoder: ranks [seeds, cases] and costs."""
    found: dict[str, dict[str, Any]] = {}
    for name in options.methods.split(","):
        views = {"ecoc": {"ecoc, w = 0": "policy", "ecoc, w = 10": "blend"}}.get(name, {name: "policy"})
        for seed in range(options.seeds):
            path = options.out / f"{data.path.name}-{encoder}-{name}-{options.steps}-{seed}"
            facts = trained(data, path, settings(name, encoder, data.counts.items), seed, options.steps)
            for label, rank_by in views.items():
                row = found.setdefault(label, {"ranks": [], "facts": facts})
                row["ranks"].append(judged(bench, path, rank_by))
            shown = means(row["ranks"][-1])["ndcg@10"]
            print(f"{data.path.name} {encoder} {name} {seed} {shown:.4f}", file=sys.stderr, flush=True)
    return found


def table(data: Dataset, bench: Bench, encoder: str, found: dict[str, dict[str, Any]]) -> None:
    """Markdown: metrics, seen and new targets, cost, and the paired difference from supervised+EMA."""
    seen = is_seen(data, bench.cases)
    base = _cases(found["supervised+ema"]["ranks"])
    others = [name for name in found if name != "supervised+ema" and found[name]["facts"]]
    tests = {name: paired(_cases(found[name]["ranks"]), base, bench.users) for name in others}
    adjusted = dict(zip(others, holm(np.array([tests[name].p[0] for name in others])), strict=True))
    epochs = found["supervised+ema"]["facts"]["epochs"]
    title = f"{data.path.name}, {encoder}: {epochs:.3g} epochs, {len(found['supervised+ema']['ranks'])} seeds"
    print(f"\n#### {title}, {len(bench.cases):,} cases, {data.counts.items:,} items\n")
    print(f"| method | {' | '.join(METRICS)} | ndcg@10 seen / new | s/epoch | Δ ndcg@10 | p (Holm) |")
    print("|" + " --- |" * (len(METRICS) + 5))
    for name, row in found.items():
        each = [means(ranks) for ranks in row["ranks"]]
        cells = " | ".join(f"{np.mean([one[metric] for one in each]):.4f}" for metric in METRICS)
        parts = " / ".join(f"{np.mean([_ndcg(ranks[kind]) for ranks in row['ranks']]):.4f}" for kind in (seen, ~seen))
        cost = f"| {row['facts']['epoch_seconds']:.1f} " if row["facts"] else "| "
        test = "| | "
        if name in tests:
            test = f"| {tests[name].difference[0]:+.4f} | {adjusted[name]:.3f} "
        print(f"| {name} | {cells} | {parts} {cost}{test}|", flush=True)


def _cases(ranks: list[Any]) -> Any:
    """NDCG@10 of each case, mean over seeds, [1, cases]."""
    return np.mean([metrics(one)["ndcg@10"] for one in ranks], axis=0)[None]


def _ndcg(ranks: Any) -> float:
    return means(ranks)["ndcg@10"] if len(ranks) else float("nan")


def main() -> None:
    """Train what is missing, judge, print."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--encoders", default="sasrec,nextitnet")
    parser.add_argument(
        "--methods",
        default="supervised,supervised+ema,ecoc,ecoc-paper,sqn,sa2c,sdac_sr,sdac_dc,prl,neural_lcb",
    )
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cases", type=int, default=6000)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for folder in options.data:
        data = ecoc.open_data(folder)
        bench = Bench(data, Options(max_cases=options.cases))
        for encoder in options.encoders.split(","):
            found = rows(data, bench, encoder, options)
            for one in bench.untrained(50):
                found[one.name] = {"ranks": [one.ranks], "facts": None}
            table(data, bench, encoder, found)


if __name__ == "__main__":
    main()
