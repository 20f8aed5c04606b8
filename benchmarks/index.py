"""The index of a bundle beside exact lists: recall@20 by weight w of the value, and time at batch 1 on one thread.

    ecoc prepare beauty.txt.gz --no-header --delimiter ' ' --user 1 --item 2 --time-format order \
        --min-item-support 1 --min-length 3 --split leave-one-out -o beauty
    ecoc train beauty -o run --method ecoc --set train.max_steps=3000
    python benchmarks/index.py run [--items 0 1000000]

--items 0 is the catalogue of the run. A smaller one is a random part of it. A larger one is made of it: each item is a
trained item, drawn evenly, whose vectors were moved by normal noise of 0.3 standard deviations of each column. So it is
no more clustered than the trained items are, but it is not trained. Queries are those of real test histories: some
build the index, others choose the factors, and the table is measured with the rest. Times are the median of processor
time over queries, for lists of 20 without 50 excluded items.
"""

import argparse
import time
from copy import copy

import torch
from torch import Tensor

import ecoc
from ecoc.data.loader import histories, open_cases
from ecoc.evaluation.opening import data_of
from ecoc.policies.base import InnerProductPolicy
from ecoc.policies.ranking import Query
from ecoc.policies.value_policy import ValuePolicy
from ecoc.serving.index import LISTED, WEIGHTS, ItemIndex, compress, measure, scanned

NOISE = 0.3  # standard deviations
QUERIES, EXCLUDED = 256, 50


def with_items(policy: ValuePolicy, items: int) -> ValuePolicy:
    """The policy with another number of items."""
    matrix = policy.item_matrix()
    if items == policy.items:
        return policy
    if items < policy.items:
        chosen = matrix[1 + torch.randperm(policy.items)[:items]]
    else:
        chosen = matrix[torch.randint(1, policy.items + 1, (items,))]
        chosen += torch.randn_like(chosen) * NOISE * matrix[1:].std(0)
    view = copy(policy)
    view.items, view._derived = items, {"blend": torch.cat([matrix[:1], chosen])}
    return view


def lists(policy: InnerProductPolicy, index: ItemIndex | None, query: Query, exclude: Tensor) -> tuple[Tensor, float]:
    """The list of each query alone, exact without an index, and the median processor time of one in milliseconds."""
    rows, taken = [], []
    for row in range(len(query)):
        part, without = query[row : row + 1], exclude[row : row + 1]
        start = time.thread_time()
        if index is None:
            listed, _ = policy.topk(part, LISTED, exclude=without)
        else:
            listed, _ = index.topk(policy, part, LISTED, exclude=without)
        taken.append(time.thread_time() - start)
        rows.append(listed)
    return torch.cat(rows), sorted(taken)[len(taken) // 2] * 1000


def report(policy: ValuePolicy, encoded: Query) -> None:
    """Build, measure and print."""
    start = time.perf_counter()
    tensors = compress(policy, encoded[:QUERIES])
    built = time.perf_counter() - start
    points = measure(ItemIndex(tensors), policy, encoded[QUERIES : 2 * QUERIES])
    index, rest = ItemIndex(tensors, points), encoded[2 * QUERIES :]
    factors = {point.w: point.factor for point in points}
    size = sum(tensor.nbytes for tensor in tensors.values())
    print(f"\n{policy.items:,} items x {policy.item_matrix().shape[1]}, built in {built:.1f} s, {size / 1e6:.1f} MB")
    print("    w  factor  recall@20  exact ms  index ms  ratio")
    for w in WEIGHTS:
        query = policy.query_of(rest, torch.full((len(rest),), w))
        exclude = torch.randint(1, policy.items + 1, (len(rest), EXCLUDED))
        exact, alone = lists(policy, None, query, exclude)
        short, scan = lists(policy, index, query, exclude)
        recall = float((exact[:, :, None] == short[:, None]).any(2).double().mean())
        factor = factors.get(w, "exact")
        print(f"{w:5g}  {factor:>6}  {recall:9.4f}  {alone:8.2f}  {scan:8.2f}  {alone / scan:5.1f}", flush=True)


def main() -> None:
    """Report for each size of the catalogue."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--items", type=int, nargs="+", default=[0, 1_000_000])
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = ecoc.load(options.run)
    policy, data = scanned(model.policy), data_of(model, None)
    if not isinstance(policy, ValuePolicy):
        raise SystemExit("give a run with a critic")
    cases = open_cases(data, "test", min_history=1, most=3 * QUERIES, seed=1)
    with torch.inference_mode():
        encoded = policy.encoded(histories(data, cases, policy.length))
        encoded = encoded[torch.randperm(len(encoded))]
        for items in options.items:
            report(with_items(policy, items or policy.items), encoded)


if __name__ == "__main__":
    main()
