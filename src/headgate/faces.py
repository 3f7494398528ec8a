"""Light faces: a package names what others may use, and imports the modules behind it when a name is first asked for.

The `__init__` of such a package says under `if TYPE_CHECKING:` where each name comes from, which is what type checkers
read; `else:` it takes `__getattr__` and `__dir__` (PEP 562) from `lazy`, which reads the same lines. So importing a
package costs nothing, and packages cannot wait for each other in a circle.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable


def lazy(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for the package of that name; `__all__` is given as well.

    No name may be that of a module of the package: after an import of the module it would mean the module.
    """
    namespace = vars(sys.modules[package])
    homes = functools.cache(lambda: _homes(package))

    def get(name: str) -> object:
        if name == "__all__":
            return sorted(homes())
        if name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = homes()[name]
        found = namespace[name] = getattr(importlib.import_module(module), original)
        return found

    return get, lambda: sorted({*namespace, *homes()})


def _homes(package: str) -> dict[str, tuple[str, str]]:
    """For each name that the package imports, at once or under `if TYPE_CHECKING:`, its module and its name there."""
    import ast
    import pkgutil

    source = pkgutil.get_data(package, "__init__.py")
    assert source is not None
    body = ast.parse(source).body
    return {
        alias.asname or alias.name: (str(statement.module), alias.name)
        for block in (body, *(one.body for one in body if isinstance(one, ast.If)))
        for statement in block
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(f"{package}.")
        for alias in statement.names
    }
