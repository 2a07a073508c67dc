"""Collects marked functions and classes from Quire, installed packages and named files.

Built-ins are collected the same way as plugins. Collecting has no side effects: a process calls
`equip` once to use the parsers and sources that were found.
"""

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from quire.errors import PluginFailed
from quire.model.contracts import MARK, JobKind, LayoutKind, ParserKind, SourceKind

Mark = JobKind | ParserKind | SourceKind | LayoutKind

BUILT_IN = ("quire.builtin", "quire.ingest.kinds")
GROUP = "quire"


@dataclass(frozen=True, slots=True)
class Registry:
    """The job kinds this process can run; the parsers, sources and layouts of plugins."""

    kinds: dict[str, JobKind] = field(default_factory=dict)
    parsers: dict[str, ParserKind] = field(default_factory=dict)
    sources: dict[str, SourceKind] = field(default_factory=dict)
    layouts: dict[str, LayoutKind] = field(default_factory=dict)

    def put(self, mark: Mark) -> None:
        """Add a mark, replacing another of the same name."""
        self.like(mark)[mark.name] = mark

    def like(self, mark: Mark) -> dict[str, Any]:
        """Return the marks of the same type by name."""
        tables: dict[type, dict[str, Any]] = {
            JobKind: self.kinds, ParserKind: self.parsers, SourceKind: self.sources,
            LayoutKind: self.layouts,
        }  # fmt: skip
        return tables[type(mark)]


def installed() -> list[str]:
    """List the modules that installed packages name as plugins."""
    from importlib import metadata  # 3 MB, which child processes do without

    return [point.value for point in metadata.entry_points(group=GROUP)]


def load(plugins: Sequence[str] = (), *, entry_points: bool = True) -> Registry:
    """Collect the marks of built-ins, installed plugins, and the given files or modules."""
    registry = Registry()
    for module in BUILT_IN:
        collect(registry, importlib.import_module(module), module)
    for name in [*(installed() if entry_points else ()), *plugins]:
        collect(registry, _module(name), name)
    return registry


def equip(registry: Registry) -> None:
    """Make this process use exactly these plugin parsers, layouts and sources."""
    from quire.fetch.sources import registry as sources
    from quire.parse import plugin_layout, plugin_parser

    plugin_parser.install(registry.parsers)
    plugin_layout.install(registry.layouts)
    sources.set_plugin_sources(registry.sources)


def collect(registry: Registry, module: ModuleType, origin: str) -> None:
    """Add the marks of `module`; refuse duplicate names and suffixes with two media types."""
    for value in vars(module).values():
        mark = getattr(value, MARK, None)
        if not isinstance(mark, Mark):
            continue
        known = registry.like(mark).get(mark.name)
        if known is not None and _made_by(known) is not _made_by(mark):
            raise PluginFailed(
                f"plugin {origin}: {_WORDS[type(mark)]} {mark.name!r} is already defined in "
                f"{_made_by(known).__module__}. Rename one of them."
            )
        if isinstance(mark, ParserKind):
            _check_suffixes(registry, mark, origin)
        registry.put(mark)


_WORDS: dict[type, str] = {
    JobKind: "job kind", ParserKind: "parser", SourceKind: "source", LayoutKind: "layout",
}  # fmt: skip


def _made_by(mark: Mark) -> Any:
    return mark.maker if isinstance(mark, SourceKind) else mark.function


def _check_suffixes(registry: Registry, mark: ParserKind, origin: str) -> None:
    for other in registry.parsers.values():
        shared = sorted(set(other.suffixes) & set(mark.suffixes))
        if shared and other.media_types[0] != mark.media_types[0]:
            raise PluginFailed(
                f"plugin {origin}: parser {mark.name!r} declares *{shared[0]} as "
                f"{mark.media_types[0]}, but parser {other.name!r} declares it as "
                f"{other.media_types[0]}. Load only one of them."
            )


def _module(name: str) -> ModuleType:
    try:
        if name.endswith(".py"):
            return _from_file(Path(name))
        return importlib.import_module(name)
    except PluginFailed:
        raise
    except (Exception, SystemExit) as error:
        raise PluginFailed(
            f"plugin {name}: {type(error).__name__}: {error}. The plugin was not loaded."
        ) from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise PluginFailed(f"plugin {path}: no such file. Name a .py file or a module.")
    # Named after the resolved path, so that a file loads once however it is spelled.
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
