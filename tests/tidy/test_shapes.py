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
