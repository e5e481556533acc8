"""Every shape of shapes.py holds for the whole product, and finds a violation that is planted."""

from __future__ import annotations

from tests.tidy import shapes


def test_no_files_need_each_other() -> None:
    assert shapes.circles(shapes.product()) == shapes.KNOWN_CIRCLES


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


def test_no_class_of_the_control_plane_has_too_many_attributes() -> None:
    assert set(shapes.large_classes(shapes.product("controller", "broker"))) == shapes.KNOWN_LARGE_CLASSES


def test_a_class_with_too_many_attributes_is_found_and_a_record_is_not() -> None:
    few = "".join(f"        self.a{number} = self.b{number} = 0\n" for number in range(7))
    body = f"class C:\n    def __init__(self):\n{few}        self.c, self._d = 1, 2\n"
    assert shapes.large_classes({"broker/a.py": body.replace("self._d", "x._d")}) == {}
    assert shapes.large_classes({"broker/a.py": body}) == {"broker.a.C": 16}
    assert shapes.large_classes({"broker/a.py": body + "        self.c += 1\n"}) == {"broker.a.C": 16}
    assert shapes.large_classes({"broker/a.py": "@dataclass(slots=True)\n" + body}) == {}


def test_answers_of_brokers_have_types() -> None:
    assert shapes.untyped(shapes.product("broker")) == {}


def test_a_folder_that_says_any_too_often_is_found() -> None:
    count = shapes.ANY_MAX["broker/server"]
    files = {"broker/server/a.py": count * "a: Any\n", "broker/wire/b.py": "b: Any\n"}
    assert shapes.untyped(files) == {}
    assert shapes.untyped(files | {"broker/server/b.py": "b: Any"}) == {"broker/server": count + 1}
