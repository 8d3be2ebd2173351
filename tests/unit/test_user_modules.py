"""Python modules of users: found beside the network file, whatever their names, and with the place of their errors."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import storage
from catalog.errors import NetworkError
from catalog.schema import Schema
from engine.operators.boxes.base import Tally
from engine.operators.boxes.python import Python
from engine.operators.user_modules import UserModules
from engine.run.network_file import read_network
from storage.train import Train

NETWORK = """
{engine}
streams: {{t: {{schema: {{a: bigint}}}}}}
boxes: {{s: {{python: t, call: "{call}", schema: {{a: bigint}}}}}}
outputs: {{o: {{from: s}}}}
"""
OUR_NAMES = ("engine", "storage", "router", "catalog", "scheduler", "load_shedder", "qos_monitor", "configs", "random")


def write(folder: Path, **modules: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


def times(number: int) -> str:
    return f'def f(columns):\n    return {{"a": columns["a"] * {number}}}\n'


def box_of(folder: Path, call: str, engine: str = "") -> Python:
    file = folder / "net.yaml"
    file.write_text(NETWORK.format(call=call, engine=engine))
    [box] = read_network(file, {}).boxes
    assert isinstance(box.box, Python)
    return box.box


def results(box: Python, *values: int) -> list[int]:
    trains: list[Train] = []
    train = Train.from_pylists(Schema.of(a="bigint"), {"a": list(values)}, 0)
    box.run(box.new_state(), 0, train, lambda port, t: trains.append(t), Tally())
    return [row[0] for t in trains for row in t.to_rows()]


def problem(folder: Path, call: str, engine: str = "") -> str:
    with pytest.raises(NetworkError) as raised:
        box_of(folder, call, engine)
    [found] = raised.value.problems
    assert found.line > 0
    return f"{found.message} ({found.hint})"


@pytest.mark.parametrize("name", OUR_NAMES)
def test_a_module_beside_the_file_is_found_whatever_its_name(tmp_path: Path, name: str) -> None:
    write(tmp_path, **{name: times(3)})
    path, before = list(sys.path), sys.modules.get(name)
    assert results(box_of(tmp_path, f"{name}:f"), 1, 2) == [3, 6]
    assert sys.path == path and sys.modules.get(name) is before


def test_modules_import_their_neighbours_also_by_our_names(tmp_path: Path) -> None:
    write(
        tmp_path,
        models="import storage\nfrom helpers import twice\nimport numpy as np\nimport pack.inner\n"
        "import pack.inner as inner\nfrom pack import other\n"
        "def f(columns):\n    from router import plus\n"
        "    assert pack.inner is inner\n"
        '    return {"a": plus(twice(columns["a"])) + storage.ONE + inner.TEN + other.N}\n',
        storage="import engine\nONE = engine.ONE\n",
        engine="ONE = 1\n",
        helpers="from router import plus\ndef twice(x):\n    return x * 2\n",
        router="def plus(x):\n    return x + 100\n",
    )
    write(tmp_path / "pack", __init__="", inner="from . import other\nfrom catalog import TEN\nassert other.N\n")
    write(tmp_path / "pack", other="N = 1000\n")
    write(tmp_path, catalog="TEN = 10\n")
    assert results(box_of(tmp_path, "models:f"), 1) == [1113]
    assert sys.modules["storage"] is storage


def test_a_package_beside_the_file_and_a_folder_without_init(tmp_path: Path) -> None:
    write(tmp_path / "lib", __init__="", models=times(2))
    write(tmp_path / "plain", models=times(4))
    write(tmp_path / "numpy", notes="raise RuntimeError")  # data, not the numpy that the module wants
    write(tmp_path, arrays="import numpy as np\ndef f(columns):\n    return {'a': np.asarray(columns['a']) + 1}\n")
    assert results(box_of(tmp_path, "lib.models:f"), 1) == [2]
    assert results(box_of(tmp_path, "plain.models:f"), 1) == [4]
    assert results(box_of(tmp_path, "arrays:f"), 1) == [2]


def test_two_boxes_share_a_module_and_two_networks_do_not(tmp_path: Path) -> None:
    write(
        tmp_path,
        models="calls = []\ndef f(columns):\n    calls.append(1)\n    return {'a': columns['a'] + len(calls)}\n",
    )
    first, second = box_of(tmp_path, "models:f"), box_of(tmp_path, "models:f")
    assert results(first, 0) + results(first, 0) + results(second, 0) == [1, 2, 1]


def test_a_file_that_is_read_again_gets_the_new_module(tmp_path: Path) -> None:
    write(tmp_path, models=times(2))
    old = box_of(tmp_path, "models:f")
    write(tmp_path, models=times(300))
    assert results(box_of(tmp_path, "models:f"), 1) == [300] and results(old, 1) == [2]


def test_folders_of_python_path_come_next(tmp_path: Path) -> None:
    write(tmp_path / "shared", models=times(5), deeper=times(6))
    write(tmp_path / "far", models=times(7), last=times(8))
    named = f"engine: {{python_path: [shared, {tmp_path / 'far'}]}}"
    for call, factor in (("models:f", 5), ("deeper:f", 6), ("last:f", 8)):
        assert results(box_of(tmp_path, call, named), 1) == [factor]
    write(tmp_path, models=times(9))
    assert results(box_of(tmp_path, "models:f", named), 1) == [9]
    (tmp_path / "file.txt").write_text("")
    for wrong in ("nowhere", "file.txt"):
        assert "is no folder" in problem(tmp_path, "models:f", f"engine: {{python_path: [shared, {wrong}]}}")


def test_a_module_of_pythons_path_is_still_found(tmp_path: Path) -> None:
    assert box_of(tmp_path, "numpy:abs").bind((Schema.of(a="bigint"),), (None,))
    assert UserModules(()).load("math").__name__ == "math"


@pytest.mark.parametrize(
    ("text", "call", "said"),
    [
        ("", "modles:f", "there is no module modles (put modles.py beside the network file: "),
        ("", "models.deep:f", "there is no module models.deep"),
        ("def score(c): ...\n", "models:scor", "models.py has no function scor (did you mean 'score'?)"),
        ("x = 1\n", "models:x", "models:x is not a function"),
        ("\n\nx = y\n", "models:f", "the module models cannot be imported at models.py:3: NameError: name 'y'"),
        ("def f(:\n", "models:f", "cannot be imported at models.py:1: SyntaxError"),
        ("import nothing_there\n", "models:f", "at models.py:1: ModuleNotFoundError: No module named 'nothing_there'"),
        ("import whole\nwhole.x\n", "models:f", "at models.py:2: AttributeError: module 'whole' has no attribute 'x'"),
        ("import inner\n", "models:f", "cannot be imported at inner.py:2: ZeroDivisionError"),
        ("\nimport sys\nsys.exit(3)\n", "models:f", "cannot be imported at models.py:3: SystemExit(3)"),
    ],
)
def test_an_error_has_its_place(tmp_path: Path, text: str, call: str, said: str) -> None:
    write(tmp_path, models=text, inner="\n1 / 0\n", whole="")
    assert said in problem(tmp_path, call)


def test_a_row_that_a_function_fails_on_has_the_line(tmp_path: Path) -> None:
    write(tmp_path, models="import deep\ndef f(columns):\n    return deep.check(columns)\n")
    write(
        tmp_path,
        deep="def check(c):\n    if (c['a'] == 7).any():\n        raise ValueError('seven')\n    return dict(c)\n",
    )
    box = box_of(tmp_path, "models:f")
    state, tally = box.new_state(), Tally()
    train = Train.from_pylists(Schema.of(a="bigint"), {"a": [1, 7, 2]}, 0)
    box.run(state, 0, train, lambda port, t: None, tally)
    assert tally.dead == 1
    assert [dead.why for dead in state.dead] == ["models:f raised ValueError at deep.py:3: seven"]


def test_a_class_of_a_user_has_a_module_that_exists(tmp_path: Path) -> None:
    """Dataclasses, pickle within the module and logging look a class's module up."""
    write(
        tmp_path,
        models="import dataclasses, pickle\n@dataclasses.dataclass\nclass P:\n    n: int\n"
        "def f(columns):\n    assert pickle.loads(pickle.dumps(P(4))) == P(4)\n    return {'a': columns['a']}\n",
    )
    assert results(box_of(tmp_path, "models:f"), 5) == [5]


def test_text_without_a_file_has_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, models=times(2))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NetworkError):
        read_network(NETWORK.format(call="models:f", engine=""), {})
    text = NETWORK.format(call="models:f", engine="engine: {python_path: [.]}")
    [box] = read_network(text, {}).boxes
    assert isinstance(box.box, Python) and results(box.box, np.int64(4)) == [8]
