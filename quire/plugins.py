"""Collects what plugins mark: from Quire itself, from installed packages, and from named files.

Built-ins pass through the same door as everybody else's.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from quire.errors import PluginFailed
from quire.model.contracts import MARK, JobKind

BUILT_IN = ("quire.builtin", "quire.ingest.kinds")
GROUP = "quire"


@dataclass(frozen=True, slots=True)
class Registry:
    """The job kinds that this process can run."""

    kinds: dict[str, JobKind] = field(default_factory=dict)


def load(plugins: Sequence[str] = (), *, entry_points: bool = True) -> Registry:
    """Collect the kinds of the built-ins, installed plugins, and the files or modules named."""
    registry = Registry()
    for module in BUILT_IN:
        collect(registry, importlib.import_module(module), module)
    for name in [*(_installed() if entry_points else ()), *plugins]:
        collect(registry, _module(name), name)
    return registry


def collect(registry: Registry, module: ModuleType, origin: str) -> None:
    """Add what `module` marks; two handlers of one name are refused."""
    for value in vars(module).values():
        kind = getattr(value, MARK, None)
        if not isinstance(kind, JobKind):
            continue
        known = registry.kinds.get(kind.name)
        if known is not None and known.function is not kind.function:
            raise PluginFailed(
                f"plugin {origin}: job kind {kind.name!r} is already defined in "
                f"{known.function.__module__}. Rename one of them."
            )
        registry.kinds[kind.name] = kind


def _installed() -> Iterable[str]:
    from importlib.metadata import entry_points

    return [point.value for point in entry_points(group=GROUP)]


def _module(name: str) -> ModuleType:
    try:
        if name.endswith(".py"):
            return _from_file(Path(name))
        return importlib.import_module(name)
    except PluginFailed:
        raise
    except (Exception, SystemExit) as error:
        raise PluginFailed(
            f"plugin {name}: {type(error).__name__}: {error}. Nothing of it was loaded."
        ) from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise PluginFailed(f"plugin {path}: no such file. Give the path of a .py file or a module.")
    # The resolved path names the module, so that one file named in two ways loads once.
    whole = path.resolve()
    name = f"quire_plugin_{whole.stem}_{abs(hash(str(whole))) % 10**8}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, whole)
    if spec is None or spec.loader is None:
        raise PluginFailed(f"plugin {path}: not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(whole.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(whole.parent))
    return module
