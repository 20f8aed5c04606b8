"""Ranking metrics of one's own: what a package or a notebook needs to add one.

A metric maps the rank of each case's true item to one value per case:

    class FirstPage:
        name = "first_page"

        def __call__(self, ranks):
            return (ranks <= 3).astype(float)

    ecoc.metrics.METRICS.register("first_page", FirstPage)      # or an entry point of the group ecoc.metrics
    ecoc.evaluate("runs/shop", metrics=["ndcg@10", "first_page"])
"""

from ecoc.evaluation.metrics import METRICS, Metric

__all__ = ["METRICS", "Metric"]
