"""Every shape of shapes.py holds for the whole product, and finds a violation that is planted."""

from __future__ import annotations

import pytest

from tests.tidy import shapes


def test_no_files_need_each_other() -> None:
    assert shapes.circles(shapes.product()) == []


def test_a_circle_of_files_is_found() -> None:
    files = {
        "broker/a.py": "from broker import b",
        "broker/b.py": "if TYPE_CHECKING:\n    from broker.c import C",
        "broker/c.py": "def f():\n    import broker.a",
        "broker/d.py": "from broker.a import A",
        "broker/__init__.py": "",
    }
    assert shapes.circles(files) == [["broker.a", "broker.b", "broker.c"]]
    assert shapes.circles(files | {"broker/c.py": "from quorum import a"}) == []


def test_no_class_has_too_many_attributes() -> None:
    found = shapes.large_classes(shapes.product())
    assert found.keys() == shapes.LARGE_CLASSES, "a class that is small now leaves LARGE_CLASSES"


def test_a_class_with_too_many_attributes_is_found_and_a_record_is_not() -> None:
    few = "".join(f"        self.a{number} = self.b{number} = 0\n" for number in range(7))
    body = f"class C:\n    def __init__(self):\n{few}        self.c, self._d = 1, 2\n"
    assert shapes.large_classes({"broker/a.py": body.replace("self._d", "x._d")}) == {}
    assert shapes.large_classes({"broker/a.py": body}) == {"broker.a.C": 16}
    assert shapes.large_classes({"broker/a.py": body + "        self.c += 1\n"}) == {"broker.a.C": 16}
    assert shapes.large_classes({"broker/a.py": "@dataclass(slots=True)\n" + body}) == {}
    assert shapes.large_classes({"quorum/a.py": body}) == {}
    more = "".join(f"        self.e{number} = 0\n" for number in range(5))
    assert shapes.large_classes({"quorum/a.py": body + more}) == {"quorum.a.C": 21}


def test_answers_of_brokers_have_types() -> None:
    assert shapes.untyped(shapes.product("broker")) == {}


def test_a_folder_that_says_any_too_often_is_found() -> None:
    count = shapes.ANY_MAX["broker/server"]
    files = {"broker/server/a.py": count * "a: Any\n", "broker/wire/b.py": "b: Any\n"}
    assert shapes.untyped(files) == {}
    assert shapes.untyped(files | {"broker/server/b.py": "b: Any"}) == {"broker/server": count + 1}


def test_the_control_plane_decides_in_its_cores() -> None:
    files = shapes.product("controller", "broker")
    assert shapes.controller_core_percent(files) >= shapes.CONTROLLER_CORE_PERCENT_MIN
    assert shapes.broker_core_lines(files) >= shapes.BROKER_CORE_LINES_MIN


def test_code_is_counted_without_blanks_comments_and_docstrings() -> None:
    head = '"""A module.\n\nOf two lines."""\n\n# a comment\nx = (  # one\n    1,\n)\n\n'
    text = head + 'def f():\n    """F."""\n    return x\n'
    assert shapes.code_lines(text) == 5
    files = {
        "controller/core/a.py": text,
        "controller/runtime/b.py": 3 * text,
        "controller/wire/c.py": text,
        "broker/core/d.py": text,
        "broker/core/groups/e.py": text,
    }
    assert shapes.controller_core_percent(files) == 25
    assert shapes.broker_core_lines(files) == 5


def test_what_is_to_be_done_is_no_attribute_of_the_controller() -> None:
    assert shapes.due_attributes(shapes.product("controller")) == set()


def test_an_attribute_that_says_what_is_due_is_found() -> None:
    text = "class T:\n    def f(self):\n        self._look_due = self._due = self.due_ms = other.x_due = 1\n"
    assert shapes.due_attributes({"controller/a.py": text}) == {"controller.a.T._look_due"}


def test_only_some_files_look_at_the_clock() -> None:
    assert shapes.clock_files(shapes.product("controller", "broker")) <= shapes.CLOCK_FILES


def test_a_look_at_the_clock_is_found() -> None:
    files = {
        "broker/a.py": "import time\nx = time.monotonic()",
        "broker/b.py": "from time import monotonic_ns as now",
        "broker/c.py": "def f():\n    return monotonic_ms()",
        "broker/d.py": "import time\nx = time.time()",
    }
    assert shapes.clock_files(files) == {"broker/a.py", "broker/b.py", "broker/c.py"}


def test_bytes_are_taken_apart_on_one_floor() -> None:
    assert shapes.decoding_files(shapes.product("controller", "broker")) == []


@pytest.mark.parametrize(
    "text",
    [
        "import struct",
        "from struct import Struct",
        "def f(b):\n    return int.from_bytes(b)",
        "from controller.wire.frames import LENGTH\nx = LENGTH.unpack_from(b)",
        "from kio.serial import entity_reader",
        "from kio.serial.readers import read_int32",
    ],
)
def test_bytes_that_are_taken_apart_elsewhere_are_found(text: str) -> None:
    assert shapes.decoding_files({"broker/server/a.py": text}) == ["broker/server/a.py"]
    assert shapes.decoding_files({"controller/wire/a.py": text, "broker/log/a.py": text}) == []


def test_a_file_may_pack_what_it_does_not_take_apart() -> None:
    packs = "from struct import Struct\nx = Struct('>i').pack(1)\n"
    assert shapes.decoding_files({"broker/wire/packing.py": packs}) == []
    assert len(shapes.decoding_files({"broker/wire/packing.py": packs + "x.unpack(b)"})) == 1


def test_few_class_names_have_two_meanings() -> None:
    found = shapes.shared_names(shapes.product())
    assert len(found) <= shapes.SHARED_NAMES_MAX, found


def test_a_name_with_two_meanings_is_found() -> None:
    files = {
        "quorum/a.py": "class Row:\n    class In: ...\nclass _Own: ...",
        "broker/b.py": "class Row: ...\nclass In: ...",
    }
    assert shapes.shared_names(files) == {"Row": ["quorum/a.py", "broker/b.py"]}
    assert shapes.shared_names({"quorum/a.py": files["quorum/a.py"], "broker/b.py": "class _Own: ..."}) == {}
