"""Makes `gymnasium.make("ecoc/Market-v0")` work after a plain `import ecoc`, without importing gymnasium for it.

Gymnasium has no plug-ins: an environment exists once someone has called `register`, and that needs gymnasium loaded,
which takes longer than all of `import ecoc`. So the call waits until the user imports gymnasium.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

ENV_ID = "ecoc/Market-v0"


def register_when_imported() -> None:
    """Register the environment now if gymnasium is loaded, else as soon as it is."""
    if "gymnasium" in sys.modules:
        register(sys.modules["gymnasium"])
    else:
        sys.meta_path.insert(0, _Waiting())


def register(gymnasium: ModuleType) -> None:
    """Make the environment known; doing it twice does no harm."""
    if ENV_ID not in gymnasium.registry:
        gymnasium.register(
            ENV_ID,
            entry_point="ecoc.world.gym:MarketEnv",
            vector_entry_point="ecoc.world.gym:MarketVectorEnv",
        )


class _Waiting:
    """Finds nothing itself; the one time gymnasium is looked for, its loader is told to register afterwards."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                register(module)

            spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec
