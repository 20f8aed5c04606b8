"""Contract suites for encoders, methods, sources and metrics of one's own, as scikit-learn's `check_estimator`.

Each function returns if the contract holds and raises an AssertionError that names the broken part if not:

    from ecoc.testing import check_encoder

    def test_my_encoder():
        check_encoder(MyEncoder)
"""

from ecoc.testing.encoders import check_encoder
from ecoc.testing.methods import check_method
from ecoc.testing.metrics import check_metric
from ecoc.testing.sources import check_source

__all__ = ["check_encoder", "check_method", "check_metric", "check_source"]
