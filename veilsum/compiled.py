"""Compiled kernels: how they are compiled and cached, and known answers that they must give.

What numba keeps on disk is trusted by the next process, so a kernel that came out wrong, or that
belongs to other sources, would stay wrong in silence, and two machines would add up numbers that do
not belong together. Therefore

- a cache entry is named by a digest of every kernel module, because numba itself looks at no file
  but the kernel's own;
- each kernel that Python calls is given a small input whose answer is known before the first result
  of every compiled version of it is returned, as cryptographic libraries test themselves at
  power-on; what was written into arrays by then is lost with the error;
- where nothing can be kept, or what was kept is damaged, kernels are compiled in memory.

This module stands below `secagg`, `dp` and `sketch`, and imports nothing of ours but `notices`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, update_wrapper
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast
from warnings import warn

import numba
import numpy as np
from numba import config, njit, types
from numba.core.caching import FunctionCache
from numba.core.sigutils import normalize_signature
from numba.extending import typeof_impl
from numba.np.numpy_support import as_dtype
from numpy.typing import NDArray

from veilsum.notices import tell_of_compiling

__all__ = [
    "Kernel",
    "KernelError",
    "compiled",
    "digest_of_sources",
    "every_kernel",
    "interpreted_answers",
    "sample",
]

_Function = TypeVar("_Function", bound=Callable[..., Any])
Case = Callable[[Any], Sequence[Any]]
"""Makes arguments for one kind of numbers; anew every time, because kernels write into them."""

_HOME = Path(__file__).resolve().parents[1]
_PACKAGES = ("secagg", "dp", "sketch", "simulations")


class KernelError(RuntimeError):
    """A compiled kernel does not give its known answer: nothing that it computed may be used.

    Attributes:
        kernel: its module and name.
        folder: where its compiled code is kept; None if it is compiled in memory.
        remedy: what to do.
    """

    def __init__(self, kernel: str, folder: str | None) -> None:
        self.kernel, self.folder = kernel, folder
        self.remedy = (
            "nothing is cached on this machine: report its processor and the versions of numba and "
            "llvmlite"
            if folder is None
            else f"delete the folder {folder}, which keeps compiled code, and start again"
        )
        super().__init__(f"the compiled kernel {kernel} gives a wrong answer: {self.remedy}")

    def __reduce__(self) -> tuple[type[KernelError], tuple[str, str | None]]:
        return KernelError, (self.kernel, self.folder)


class Kernel:
    """A compiled function that Python calls, with a known answer.

    Other kernels call it too: there it is the compiled function itself.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        dispatcher: Any,
        cases: Sequence[Case],
        kinds: Sequence[Any],
        answer: int,
    ) -> None:
        update_wrapper(self, function)
        self.name = f"{function.__module__}.{function.__name__}"
        self.py_func, self.dispatcher = function, dispatcher
        self.cases, self.kinds, self.answer = cases, kinds, answer
        self._versions_checked = 0

    def __call__(self, *arguments: Any) -> Any:
        """Compute; raises `KernelError` if a version of this kernel is wrong."""
        result = self.dispatcher(*arguments)
        # A version for other types is compiled, or read from the cache, when it is first needed.
        if len(self.dispatcher.overloads) != self._versions_checked:
            self._check_versions()
        return result

    def check(self) -> None:
        """Check the versions for all kinds of numbers, compiling what is not there."""
        self._versions_checked = -1
        for kind in self.kinds:
            self._check([case(kind) for case in self.cases])
        self._check_versions()

    def _check_versions(self) -> None:
        self._versions_checked = -1
        versions = list(self.dispatcher.overloads)
        for version in versions:
            arguments = self._fitted(version)
            if arguments is not None:
                self._check(arguments)
        self._versions_checked = len(versions)

    def _check(self, arguments: Sequence[Sequence[Any]]) -> None:
        if answer_of(self.dispatcher, arguments) != self.answer:
            raise KernelError(self.name, self.folder)

    def _fitted(self, version: Sequence[types.Type]) -> list[list[Any]] | None:
        """The cases in the types of a compiled version; None if there is no kind for it."""
        for kind in self.kinds:
            fitted = [_fitted(case(kind), version) for case in self.cases]
            if None not in fitted:
                return cast(list[list[Any]], fitted)
        return None

    @property
    def folder(self) -> str | None:
        """Where compiled code is kept; None if nowhere."""
        path = self.dispatcher.stats.cache_path
        return None if path is None else str(path)

    @property
    def unchecked(self) -> list[Any]:
        """The versions for types of which nothing is known."""
        return [each for each in self.dispatcher.overloads if self._fitted(each) is None]


@typeof_impl.register(Kernel)
def _as_seen_by_kernels(kernel: Kernel, _: object) -> types.Type:
    return types.Dispatcher(kernel.dispatcher)


class _Cache(FunctionCache):
    """numba's cache, where what cannot be read or written costs time and nothing else."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """A version for these very types; None if there is none, or what is there is damaged."""
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # whatever unpickling half a file may raise
            return None
        # Two processes that save versions at once can leave one's code under the other's types.
        if found is None or found.signature.args != normalize_signature(sig)[0]:
            tell_of_compiling()
            return None
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a version if the disk allows."""
        try:
            super().save_overload(sig, data)
        except OSError:
            _warn_of_no_cache()


def compiled(
    *cases: Case, kinds: Sequence[Any] = (None,), answer: int | None = None, **options: Any
) -> Callable[[_Function], _Function]:
    """Compile a function with numba, without Python's lock, and keep the machine code on disk."""

    def compile_function(function: _Function) -> _Function:
        if getattr(config, "DISABLE_JIT", False):
            # Interpreted, to see what is right.
            if answer is not None:
                name = f"{function.__module__}.{function.__name__}"
                _INTERPRETED[name] = (function, cases, kinds, answer)
            return function
        own_name = function.__qualname__
        function.__qualname__ = f"{own_name}_{digest_of_sources()}"
        dispatcher = njit(nogil=True, **options)(function)
        try:
            dispatcher._cache = _Cache(function)
        except RuntimeError:
            _warn_of_no_cache()
        function.__qualname__ = own_name
        if answer is None:
            return cast(_Function, dispatcher)
        kernel = Kernel(function, dispatcher, cases, kinds, answer)
        _KERNELS[kernel.name] = kernel
        return cast(_Function, kernel)

    return compile_function


_KERNELS: dict[str, Kernel] = {}
_INTERPRETED: dict[str, tuple[Callable[..., Any], Sequence[Case], Sequence[Any], int]] = {}


def kernel_modules() -> list[Path]:
    """The files of all kernel modules: the only ones that compile, and they know no others."""
    found = (path for name in _PACKAGES for path in (_HOME / name).rglob("_*kernels.py"))
    return sorted(found)


def every_kernel() -> Iterator[Kernel]:
    """The kernels that Python calls, in the order of their names; imports their modules."""
    _import_all()
    for name in sorted(_KERNELS):
        yield _KERNELS[name]


def kernels_so_far() -> list[Kernel]:
    """Those of the modules that are imported already."""
    return list(_KERNELS.values())


def interpreted_answers() -> dict[str, tuple[int, set[int]]]:
    """What each kernel should answer, and what it does in Python alone (NUMBA_DISABLE_JIT=1)."""
    _import_all()
    with np.errstate(all="ignore"):
        return {
            name: (answer, {answer_of(run, [case(kind) for case in cases]) for kind in kinds})
            for name, (run, cases, kinds, answer) in sorted(_INTERPRETED.items())
        }


def _import_all() -> None:
    for path in kernel_modules():
        import_module(".".join(path.relative_to(_HOME).with_suffix("").parts))


def sample(
    *shape: int, below: int = 1 << 16, kind: Any = np.uint64, low: int = 0, parts: int = 1
) -> NDArray[Any]:
    """Numbers that look random, and are the same everywhere: (low + 0 .. below - 1) / parts."""
    count = np.arange(1, 1 + int(np.prod(shape)), dtype=np.uint64)
    words = count * np.uint64(0x9E37_79B9_7F4A_7C15)
    words = (words ^ (words >> np.uint64(29))) % np.uint64(below)
    numbers = words.astype(np.int64) + low if low else words
    return (numbers / parts if parts != 1 else numbers).astype(kind).reshape(shape)


def answer_of(function: Callable[..., Any], cases: Sequence[Sequence[Any]]) -> int:
    """The checksum of what a kernel returns for each case, and of its arrays afterwards.

    It depends on their values and not on their types; of floats the last bits do not count.
    """
    checksum = 0
    for arguments in cases:
        returned = function(*arguments)
        arrays = [each for each in arguments if isinstance(each, np.ndarray | tuple)]
        for values in _flat((returned, *arrays)):
            plain = values.astype(np.float32 if values.dtype.kind == "f" else np.int64)
            checksum = zlib.crc32(plain.tobytes(), checksum)
    return checksum


def _flat(value: Any) -> Iterator[NDArray[Any]]:
    if isinstance(value, tuple):
        for part in value:
            yield from _flat(part)
    elif value is not None:
        yield np.asarray(value)


def _fitted(arguments: Sequence[Any], version: Sequence[types.Type]) -> list[Any] | None:
    """The same values in the types of a compiled version; None if they cannot be made so."""
    fitted = []
    for value, kind in zip(arguments, version, strict=True):
        if isinstance(kind, types.Array) and isinstance(value, np.ndarray):
            value = _laid_out(value, kind.layout)
            value.flags.writeable = kind.mutable
        elif isinstance(kind, types.Number | types.Boolean):
            value = as_dtype(kind).type(value)
        if numba.typeof(value) != kind:
            return None
        fitted.append(value)
    return fitted


def _laid_out(values: NDArray[Any], layout: str) -> NDArray[Any]:
    if layout == "A":
        spread = np.zeros((*values.shape[:-1], 2 * values.shape[-1]), values.dtype)
        spread[..., ::2] = values
        return spread[..., ::2]
    return np.array(values, order="F" if layout == "F" else "C")


@cache
def digest_of_sources() -> str:
    """A digest of all kernel modules and of this one; in the name of each entry of the cache."""
    digest = blake2b(digest_size=8)
    for path in (Path(__file__), *kernel_modules()):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _warn_of_no_cache() -> None:
    warn(
        "compiled code cannot be kept on this machine, so every process compiles it again: "
        "set NUMBA_CACHE_DIR to a folder that can be written to and has room",
        RuntimeWarning,
        stacklevel=4,
    )
