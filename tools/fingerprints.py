"""Fingerprints of what ecoc computes, to be equal before and after a change that must not change results.

    python tools/fingerprints.py record before.json     # at the commit before
    python tools/fingerprints.py check before.json      # after the change, on the same machine; prints every difference

It records the hash of the weights of short runs (every method and encoder, dense and row-sparse item tables), the
checksum of prepared data for every source, and the JSON answer of each command, without paths and times. Weights are
equal bit by bit only on one machine with one version of each library, so the file is not kept in the repository.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "contracts"))

VOLATILE = {"seconds", "path", "peak_rss_bytes", "transitions_per_second", "parts", "report", "run", "out", "memory"}
VOLATILE |= {"checkpoints", "written", "provenance", "finished", "steps_per_second", "data", "tables", "figures"}
ENCODERS = ("gru4rec", "narm", "stamp", "caser", "nextitnet", "srgnn", "gcsan", "dhcn", "sasrec", "ssept", "bert4rec")
METHODS = (
    "supervised",
    "ecoc",
    "sqn",
    "sa2c",
    "sdac_sr",
    "sdac_dc",
    "prl",
    "neural_lcb",
    "popular",
    "recent",
    "markov",
)
SMALL = ["encoder.dim=8", "encoder.length=10", "train.batch=16", "train.max_steps=40", "train.patience=0"]
SMALL += ["train.validate_every=20", "train.validation_cases=200", "train.log_every=10", "train.warmup=5"]
SHARED = ["method.critic=shared", "method.dc=1", "method.alpha=5", "method.gamma=0.5", "method.trace=0"]
SHARED += ["method.dueling=false", "method.loss=bpr", "method.xi=gumbel", "method.n1=20", "method.backup=sample"]
SEPARATE = ["method.critic=separate", "method.clip=vector", "method.entropy=0.1", "method.distil=0.1", "method.dc=1"]
SEPARATE += ["method.dc_q=first", "method.decay_actor=false", "train.weight_decay=0.001", "train.terminal_every=5"]
INDEX = ["method.xi=topk", "method.n1=9", "method.index_from=1", "method.index_every=7", "method.candidates=20"]
POOL = ["method.loss=sampled", "method.xi=pool", "method.pool=32", "train.table=sparse"]
SPARSE = ["method.loss=sampled", "train.table=sparse"]
VARIANTS: dict[str, tuple[str, str, list[str]]] = {
    **{f"{name} sasrec": (name, "sasrec", []) for name in METHODS},
    **{f"supervised {name}": ("supervised", name, []) for name in ENCODERS},
    **{f"ecoc {name}": ("ecoc", name, []) for name in ("nextitnet", "srgnn", "bert4rec", "ssept")},
    "supervised sparse": ("supervised", "sasrec", SPARSE),
    "supervised sparse ema": ("supervised", "sasrec", [*SPARSE, "train.ema=0.05"]),
    "supervised ema": ("supervised", "sasrec", ["train.ema=0.05"]),
    "supervised bpr": ("supervised", "gru4rec", ["method.loss=bpr"]),
    "ecoc sparse": ("ecoc", "sasrec", POOL),
    "ecoc sparse online": ("ecoc", "gru4rec", [*POOL, "method.next_from=online"]),
    "ecoc shared": ("ecoc", "sasrec", SHARED),
    "ecoc shared sparse": ("ecoc", "gru4rec", ["method.critic=shared", "method.dc=1", *POOL]),
    "ecoc separate": ("ecoc", "sasrec", SEPARATE),
    "ecoc index": ("ecoc", "sasrec", INDEX),
    "ecoc cdf": ("ecoc", "sasrec", ["method.xi=cdf", "method.n1=20"]),
    "ecoc control": ("ecoc", "sasrec", ["method.control=1", "method.rank_by=rerank"]),
    "ecoc bpr reg": ("ecoc", "sasrec", ["method.reg=bpr"]),
    "sdac_sr sparse": ("sdac_sr", "sasrec", ["train.table=sparse"]),
    "sdac_dc sparse": ("sdac_dc", "sasrec", ["train.table=sparse"]),
    "prl gru4rec": ("prl", "gru4rec", []),
    "shuffled": ("ecoc", "sasrec", ["train.shuffle_rewards=true"]),
    "prefix": ("supervised", "sasrec", ["train.windows=prefix"]),
    "tile": ("supervised", "sasrec", ["train.windows=tile", "train.schedule=constant", "train.weight_decay=0.001"]),
}
ASKED = ["-k", "5", "--exclude-seen", "--w", "5"]
TABLE = ["--methods", "supervised,ecoc,sqn", "--seeds", "1", "--steps", "30", "--max-cases", "200"]
PRESETS = ["paper", "yelp", "tmall", "rl4rs"]
COMMANDS: dict[str, list[str]] = {
    "info data": ["info", "{data}"],
    "info run": ["info", "{ecoc}", "--verify"],
    "evaluate": ["evaluate", "{ecoc}", "--max-cases", "300"],
    "evaluate seen out": ["evaluate", "{supervised}", "--exclude-seen", "--max-cases", "300", "--split", "validation"],
    "evaluate rerank": ["evaluate", "{ecoc}", "--rank-by", "rerank", "--m", "7", "--no-untrained"],
    "compare": ["compare", "{supervised}", "{ecoc}", "--max-cases", "300"],
    "recommend": ["recommend", "{ecoc}", "--history", "i0003:buy,i0017,nonsense", *ASKED],
    "normtest": ["normtest", "{supervised}", "{ecoc}"],
    "simulate": ["simulate", "{supervised}", "{ecoc}", "--users", "40"],
    "choose": ["simulate", "{chosen}", "--choose-w", "--users", "30"],
    "report": ["report", "{supervised}", "{ecoc}", "-o", "{out}/report.html"],
    "reproduce": ["reproduce", "imitation", "{data}", "-o", "{out}/imitation", *TABLE],
    "demo": ["demo", "--quick", "-o", "{out}/demo"],
}


def main() -> None:
    """Record or check."""
    action, path = sys.argv[1], Path(sys.argv[2])
    only = sys.argv[3:]
    with tempfile.TemporaryDirectory() as folder:
        now = fingerprints(Path(folder), only)
    if action == "record":
        path.write_text(json.dumps(now, indent=1, sort_keys=True))
        print(f"{sum(map(len, now.values()))} fingerprints in {path}")
        return
    before = steady(json.loads(path.read_text()))
    wrong = list(differences({name: before[name] for name in now}, steady(json.loads(json.dumps(now)))))
    print("\n".join(wrong[:200]))
    print(f"{sum(map(len, now.values()))} fingerprints, {len(wrong)} differences")
    sys.exit(bool(wrong))


def fingerprints(folder: Path, only: list[str]) -> dict[str, dict[str, Any]]:
    """Everything, or the parts named."""
    parts = {"prepared": prepared, "weights": weights, "answers": answers}
    return {name: dict(part(folder / name)) for name, part in parts.items() if not only or name in only}


def prepared(folder: Path) -> Iterator[tuple[str, Any]]:
    """Checksums of every source's dataset."""
    from raw_logs import WRITERS

    import ecoc

    for source, variants in WRITERS.items():
        for variant, write in variants.items():
            raw = folder / f"{source} {variant}"
            raw.mkdir(parents=True)
            case = write(raw, None)
            given = case.source if isinstance(case.source, list) else [case.source]
            options: dict[str, Any] = {"threads": 1, "bad_rows": "skip", **case.options}
            data = ecoc.prepare(given, folder / f"{source} {variant} out", format=source, **options)
            yield f"{source} {variant}", data.checksum


def weights(folder: Path) -> Iterator[tuple[str, Any]]:
    """Hashes of the weights that short runs end with, and their validation."""
    data = world(folder)
    for name, (method, encoder, settings) in VARIANTS.items():
        words = [word for setting in [*SMALL, *settings] for word in ("--set", setting)]
        run = folder / name.replace(" ", "-")
        facts = command("train", data, "-o", run, "--method", method, "--encoder", encoder, *words)
        yield name, {key: facts[key] for key in ("weights_sha256", "validation", "steps", "best_epoch")}
    for preset in PRESETS:
        words = [word for setting in ("train.max_steps=8", "method.n1=20") for word in ("--set", setting)]
        for method in ("ecoc", "supervised"):
            more = words if method == "ecoc" else words[:2]
            facts = command(
                "train", data, "-o", folder / f"{method}-{preset}", "--method", method, "--preset", preset, *more
            )
            yield f"preset {preset} {method}", facts["weights_sha256"]


def answers(folder: Path) -> Iterator[tuple[str, Any]]:
    """What commands answer, without what changes from call to call."""
    places = {"data": world(folder), "out": folder}
    for name, method in {"supervised": "supervised", "ecoc": "ecoc", "chosen": "ecoc"}.items():
        words = [word for setting in SMALL for word in ("--set", setting)]
        places[name] = folder / name
        yield f"train {name}", steady(command("train", places["data"], "-o", places[name], "--method", method, *words))
    for name, words in COMMANDS.items():
        yield name, steady(command(*(word.format(**places) for word in words)))


def world(folder: Path) -> Path:
    """A small dataset to learn from."""
    command("prepare", "world:small", "-o", folder / "data", "--events", 6000)
    return folder / "data"


def command(*words: object) -> dict[str, Any]:
    """The JSON answer of a command."""
    from typer.testing import CliRunner

    from ecoc.cli import app

    result = CliRunner().invoke(app, [*map(str, words), "--json", "--quiet"], catch_exceptions=False)
    if result.exit_code:
        raise SystemExit(f"{words}: exit {result.exit_code}: {result.output}")
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def steady(value: Any) -> Any:
    """An answer without paths, times and memory; their keys stay. Jobs stand in an order that depends on time."""
    if isinstance(value, dict):
        return {key: "…" if key in VOLATILE or "sec" in key else steady(part) for key, part in value.items()}
    if isinstance(value, list):
        parts = [steady(part) for part in value]
        return sorted(parts, key=str) if parts and isinstance(parts[0], dict) and "status" in parts[0] else parts
    return value


def differences(before: Any, now: Any, place: str = "") -> Iterator[str]:
    """Every place where two fingerprints differ; keys that were added are no difference."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key, value in before.items():
            if key not in now:
                yield f"{place}/{key}: is gone"
            else:
                yield from differences(value, now[key], f"{place}/{key}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, (one, two) in enumerate(zip(before, now, strict=True)):
            yield from differences(one, two, f"{place}[{number}]")
    elif before != now:
        yield f"{place}: {before!r:.120} -> {now!r:.120}"


if __name__ == "__main__":
    main()
