"""Compiled kernels: where they may stand, what they must answer, what a cache can do to them."""

from __future__ import annotations

import ast
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from veilsum import compiled
from veilsum.compiled import every_kernel, kernel_modules

ROOT = Path(__file__).parents[1]
PACKAGES = ("secagg", "dp", "sketch", "protocol", "simulations", "veilsum")
KERNEL_MODULES = kernel_modules()
COMPILERS = {"njit", "jit", "vectorize", "guvectorize", "stencil", "cfunc", "generated_jit"}


def sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def misplaced(path: Path, source: str) -> list[str]:
    """What breaks a rule of kernels in a module."""
    tree = ast.parse(source)
    found = []
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    names: set[str] = set()
    is_kernel_module = path in KERNEL_MODULES
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in COMPILERS and path.name != "compiled.py":
            found.append(f"{node.id} is not cached by the sources")
        if isinstance(node, ast.Attribute) and node.attr in COMPILERS:
            found.append(f"{node.attr} is not cached by the sources")
        if isinstance(node, ast.ImportFrom | ast.Import) and is_kernel_module:
            for name in (
                [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            ):
                assert name is not None
                known = {"__future__", "typing", "numpy", "numpy.typing", "veilsum.compiled"}
                if name not in known and not name.rsplit(".", 1)[-1].endswith("kernels"):
                    found.append(f"a constant of {name} is compiled in, and its changes unnoticed")
        if isinstance(node, ast.Name) and node.id == "compiled" and "veilsum.compiled" in source:
            call = parents[node]
            function = parents.get(call)
            if not is_kernel_module:
                found.append("compiled outside a kernel module")
            elif not isinstance(function, ast.FunctionDef) or call not in function.decorator_list:
                found.append("compiled is a decorator")
            elif parents[function] is not tree:
                found.append(f"{function.name} is compiled in a function")
            elif function.name in names:
                found.append(f"two kernels share the name {function.name}")
            else:
                names.add(function.name)
    return found


def test_kernels_stand_in_kernel_modules_under_names_of_their_own() -> None:
    found = {str(path): wrong for path in sources() if (wrong := misplaced(path, path.read_text()))}
    assert found == {}


@pytest.mark.parametrize(
    "source",
    [
        "def make(run):\n    @compiled()\n    def levels(values): pass\n    return levels",
        "@compiled()\ndef f(x): pass\n@compiled()\ndef f(y): pass",
        "f = compiled()(lambda x: x)",
        "from numba import njit\n@njit(cache=True)\ndef f(x): pass",
        "import numba\n@numba.njit\ndef f(x): pass",
        "from secagg.field import MAX_BITS",
    ],
)
def test_the_rules_of_kernels_catch_what_they_should(source: str) -> None:
    assert misplaced(KERNEL_MODULES[0], f"from veilsum.compiled import compiled\n{source}")


def run(code: str, folder: Path, **variables: str) -> str:
    """The output of a fresh process that keeps compiled code in a folder."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(folder), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() + done.stderr.strip()


def test_known_answers_are_those_of_the_interpreter(tmp_path: Path) -> None:
    code = """
from veilsum.compiled import interpreted_answers
answers = interpreted_answers()
print(len(answers), {name: found for name, (answer, found) in answers.items() if found != {answer}})
"""
    assert run(code, tmp_path, NUMBA_DISABLE_JIT="1") == f"{len(list(every_kernel()))} {{}}"


HADAMARD = """
import sys
import numpy as np
from scipy.linalg import hadamard
from sketch._hadamard_kernels import walsh_hadamard
values = np.random.default_rng(0).normal(size=1 << {power})
columns = min(values.size, 1 << 7)
expected = hadamard(values.size // columns) @ values.reshape(-1, columns) @ hadamard(columns)
walsh_hadamard(values, 1.0)
print(np.allclose(values, expected.ravel()))
"""
ADD = """
import numpy as np
from secagg._kernels import add_vectors
a, b = (np.arange(s, s + 99, dtype=np.{kind}) for s in (65_000, 64_000))
a, b = a % 65_521, b % 65_521
expected = (a.astype(int) + b.astype(int)) % 65_521
add_vectors(a, b, 65_521)
print((a == expected).all())
"""


@pytest.mark.parametrize(
    "steps",
    [
        [HADAMARD.format(power=power) for power in (9, 19, 13, 9, 16)],
        [ADD.format(kind=kind) for kind in ("uint16", "uint64", "uint32", "uint16")],
    ],
    ids=["sizes", "types"],
)
def test_a_kernel_is_right_whatever_filled_the_cache_before(
    steps: list[str], tmp_path: Path
) -> None:
    assert [run(step, tmp_path) for step in steps] == ["True"] * len(steps)


def test_a_wrong_kernel_is_refused_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = next(each for each in every_kernel() if each.name == "dp._kernels.extent")
    kernel.check()
    monkeypatch.setattr(kernel, "answer", kernel.answer ^ 1)
    monkeypatch.setattr(kernel, "_versions_checked", 0)
    arguments = kernel.cases[0](kernel.kinds[0])
    for _ in range(2):
        with pytest.raises(compiled.KernelError, match=r"dp\._kernels\.extent") as raised:
            kernel(*arguments)
        assert raised.value.folder in str(raised.value)


def test_versions_for_other_layouts_are_checked_too() -> None:
    import numpy as np

    kernel = next(each for each in every_kernel() if each.name == "dp._kernels.extent")
    frozen = np.arange(12)[::3]
    frozen.flags.writeable = False
    assert kernel(frozen) == (0, 9)
    assert kernel.unchecked == []


def test_a_cache_belongs_to_one_state_of_all_kernel_modules(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = tmp_path / "_kernels.py"
    monkeypatch.setattr(compiled, "kernel_modules", lambda: [module])
    digests = []
    for text in ("SHIFT = 31", "SHIFT = 30"):
        module.write_text(text)
        os.utime(module, (0, 0))
        digests.append(compiled.digest_of_sources.__wrapped__())
    assert digests[0] != digests[1]


def test_names_in_the_cache_bear_the_digest_of_the_sources(tmp_path: Path) -> None:
    run(ADD.format(kind="uint32"), tmp_path)
    names = [path.name for path in tmp_path.rglob("*.nbi")]
    assert names and all(compiled.digest_of_sources() in name for name in names)


def test_without_a_place_for_a_cache_kernels_are_compiled_in_memory_and_one_warning_says_so(
    tmp_path: Path,
) -> None:
    code = """
import warnings
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    import secagg
    import dp
print(*[warning.message for warning in found if "NUMBA_CACHE_DIR" in str(warning.message)], sep="|")
"""
    code += ADD.format(kind="uint32")
    # The one place that this leaves is that of notebooks, and this is none.
    said = run(code, tmp_path, NUMBA_CACHE_LOCATOR_CLASSES="IPythonCacheLocator").splitlines()
    assert len(said) == 2 and "|" not in said[0] and said[1] == "True", said
    assert "set NUMBA_CACHE_DIR" in said[0]
    assert list(tmp_path.rglob("*.nbi")) == []


EXTENT = """
import numpy as np
from dp._kernels import extent
values = np.arange(12, dtype=np.int64)
print(extent({values}))
"""


TOLD = """
from veilsum.notices import before_compiling
before_compiling(lambda: print("compiling"))
"""


def test_compiling_is_told_of_once_and_only_where_it_happens(tmp_path: Path) -> None:
    twice = TOLD + EXTENT.format(values="values[::3]") + "print(extent(values))"
    assert run(twice, tmp_path).split("\n") == ["compiling", "(0, 9)", "(0, 11)"]
    assert run(twice, tmp_path).split("\n") == ["(0, 9)", "(0, 11)"]


@pytest.mark.parametrize("damage", ["other types", "half a file"])
def test_what_is_damaged_in_the_cache_is_compiled_again(damage: str, tmp_path: Path) -> None:
    """Two processes that save at once can leave the code of one under the types of the other."""
    assert run(EXTENT.format(values="values[::3]"), tmp_path) == "(0, 9)"
    (strided,) = tmp_path.rglob("_kernels.extent*.nbc")
    if damage == "half a file":
        strided.write_bytes(strided.read_bytes()[: strided.stat().st_size // 2])
    else:
        assert run(EXTENT.format(values="values"), tmp_path / "apart") == "(0, 11)"
        (whole,) = (tmp_path / "apart").rglob("_kernels.extent*.nbc")
        strided.write_bytes(whole.read_bytes())
    assert run(EXTENT.format(values="values[::3]"), tmp_path) == "(0, 9)"


def test_a_full_disk_costs_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = next(each for each in every_kernel() if each.name == "dp._kernels.extent")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    compiled._warn_of_no_cache.cache_clear()
    monkeypatch.setattr(compiled.FunctionCache, "save_overload", full)
    with pytest.warns(RuntimeWarning, match="NUMBA_CACHE_DIR"):
        kernel.dispatcher._cache.save_overload(None, None)
