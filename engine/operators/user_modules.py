"""The Python modules of a user, for boxes that call functions: loaded from their files, under names of their own.

The problem. A network file names functions (``models:score``) of modules that lie beside it. Such a module may have any
name, also that of a package of ours: ``engine.py``, ``storage.py``, ``router.py``. If its folder were on ``sys.path``,
it would hide our package, or ours would hide it.

The design. The folders never come onto ``sys.path``. A package that exists in memory only, such as ``aurorad_user_1``,
has the folders as its path, so ``storage.py`` becomes the module ``aurorad_user_1.storage``. An ``import storage`` in a
user's module must find its neighbour as well. Python looks into ``sys.modules`` by the name that is written, before it
asks any finder, and there stands our ``storage``. So a user's module gets an ``__import__`` of its own: it tries the
folders first, and then does what Python does. Functions keep it, so an import inside a function works too.

Rules
- The folder of the network file comes first, then those of ``engine.python_path``, then Python's own path.
- A folder without ``__init__.py`` counts as a package only if Python knows no other module of its name.
- A network file that is read again loads its modules again. The modules of before stay in memory until the process
  ends: functions of a running network may use them.

Limits. ``importlib.import_module("helpers")``, pickle and child processes go by the name that is written and know
nothing of the folders: they find only what is on Python's path. ``PYTHONPATH`` puts a folder there.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import Any

_numbers = itertools.count(1)
_packages: dict[str, UserModules] = {}  # by the name of the package in memory


class UserModules:
    """The modules in these folders, for one network. Nothing is loaded before ``load``."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(folder.resolve() for folder in folders)
        self._package = ""
        self._own: dict[str, bool] = {}  # by the first part of a module's name: whether the folders have it

    def load(self, name: str) -> ModuleType:
        """Return a module by its name, from the folders or else from Python's path. Any error of its code comes out."""
        return importlib.import_module(self._full_name(name) if self.has(name) else name)

    def has(self, name: str) -> bool:
        """Tell whether the folders have this module, or its package."""
        top = name.partition(".")[0]
        if top not in self._own:
            self._own[top] = self._find(top)
        return self._own[top]

    def place(self, error: BaseException) -> str:
        """Return ``models.py:12``, the deepest line in these folders that an error came through; "" for none."""
        if isinstance(error, SyntaxError) and error.filename and self.relative(error.filename):
            return f"{self.relative(error.filename)}:{error.lineno}"
        lines = [(self.relative(frame.f_code.co_filename), line) for frame, line in walk_tb(error.__traceback__)]
        return next((f"{file}:{line}" for file, line in reversed(lines) if file), "")

    def plain(self, text: str) -> str:
        """Return a message with the names that the user gave to the modules."""
        return text.replace(f"{self._package}.", "") if self._package else text

    def relative(self, file: str) -> str:
        """Return the path of a file from the folder that it lies in; "" for a file elsewhere."""
        for folder in self.folders:
            if file.startswith(f"{folder}{os.sep}"):
                return file[len(str(folder)) + 1 :]
        return ""

    def digest(self) -> str:
        """Return a text that differs when the source of a loaded module of the folders differs."""
        prefix = f"{self._package}."
        named = sorted((name, m) for name, m in list(sys.modules.items()) if self._package and name.startswith(prefix))
        files = [getattr(module, "__file__", None) for _, module in named]
        whole = blake2b(digest_size=12)
        for (name, _), file in zip(named, files, strict=True):
            whole.update(name.removeprefix(prefix).encode())
            whole.update(b"" if file is None else Path(file).read_bytes())
        return whole.hexdigest()

    def _find(self, top: str) -> bool:
        if not self.folders:
            return False
        if not self._package:
            self._make_package()
        spec = PathFinder.find_spec(self._full_name(top), [str(folder) for folder in self.folders])
        if spec is None:
            return False
        if spec.loader is not None and spec.origin is not None:
            return True
        return importlib.util.find_spec(top) is None  # a folder without __init__.py: data that has a module's name?

    def _make_package(self) -> None:
        importlib.invalidate_caches()  # a file may be younger than Python's last look at its folder
        self._package = f"aurorad_user_{next(_numbers)}"
        package = ModuleType(self._package, "The modules of a network file, in memory only.")
        package.__path__ = [str(folder) for folder in self.folders]
        _packages[self._package] = self
        sys.modules[self._package] = package
        if _FINDER not in sys.meta_path:
            sys.meta_path.insert(0, _FINDER)

    def _full_name(self, name: str) -> str:
        return f"{self._package}.{name}"

    def import_for_user(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Stand in for ``__import__`` in the modules of the folders."""
        if level or not self.has(name):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = builtins.__import__(self._full_name(name), globals, locals, fromlist or ("__name__",), 0)
        # ``import a.b`` binds a, ``from a.b import c`` takes c of b.
        return module if fromlist else sys.modules[self._full_name(name.partition(".")[0])]


class _UserLoader(SourceFileLoader):
    """Loads a module with the ``__import__`` of its folders."""

    def __init__(self, fullname: str, path: str, modules: UserModules) -> None:
        super().__init__(fullname, path)
        self._modules = modules

    def exec_module(self, module: ModuleType) -> None:
        own = {**vars(builtins), "__import__": self._modules.import_for_user}
        vars(module)["__builtins__"] = own
        super().exec_module(module)


class _UserFinder(MetaPathFinder):
    """Finds the modules below the packages in memory, and no others."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        modules = _packages.get(fullname.partition(".")[0])
        if modules is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader) and spec.origin is not None:
            spec.loader = _UserLoader(fullname, spec.origin, modules)
        return spec


_FINDER = _UserFinder()
