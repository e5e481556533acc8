"""The documentation site: it builds without a warning, its menu has every page, and dead links are found."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.site import staging


def in_the_menu(menu: Any) -> list[str]:
    """Every page of a menu, in order."""
    if isinstance(menu, str):
        return [menu]
    return [
        page for part in (menu.values() if isinstance(menu, dict) else menu) for page in in_the_menu(part)
    ]


def test_the_menu_has_every_page_once() -> None:
    settings = tomllib.loads(staging.SETTINGS.read_text("utf-8"))
    assert sorted(in_the_menu(settings["project"]["nav"])) == sorted(staging.pages().values())


def test_the_site_is_built_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    built = staging.build(tmp_path / "site")
    assert built.returncode == 0, built.stdout + built.stderr
    page = (tmp_path / "site/site/concepts/guarantees.html").read_text("utf-8")
    assert 'href="../internals/consensus.html' in page
    assert re.findall(r"<(?:script|img|link rel=\"stylesheet\")[^>]*(?:src|href)=\"https?:", page) == []


@pytest.mark.parametrize(
    ("link", "error"),
    [
        ("[code](../none.py)", "docs/index.md links ../none.py"),
        ("[page](concepts/none.md)", "docs/index.md links concepts/none.md"),
    ],
)
def test_a_link_to_what_does_not_exist_is_found(link: str, error: str) -> None:
    with pytest.raises(staging.DeadLinkError, match=re.escape(error)):
        staging.relinked("docs/index.md", f"# A\n\n{link}\n")


def test_an_anchor_that_does_not_exist_is_found(tmp_path: Path) -> None:
    docs = tmp_path / "repository/docs"
    docs.mkdir(parents=True)
    for path in staging.ELSEWHERE:
        (docs.parent / path).write_text("# Page\n", "utf-8")
    (docs / "index.md").write_text("# A\n\n[b](#b)\n", "utf-8")
    (docs / staging.SETTINGS.name).write_text('[project]\nsite_name = "A"\n', "utf-8")
    built = staging.build(tmp_path / "site", docs.parent)
    assert (built.returncode, "anchor does not exist" in built.stdout + built.stderr) == (1, True)


def test_links_are_as_in_the_site() -> None:
    text = "[a](../ARCHITECTURE.md#code-map) [b](../deploy/node.toml) [c](concepts/guarantees.md)\n"
    code = "```\n[d](x)\n```\n- e\n\n  ```\n  [f](x)\n  ```\n~~~\n[g](x)\n~~~\n"
    assert staging.relinked("docs/index.md", text + code) == (
        "[a](internals/architecture.md#code-map) b (`deploy/node.toml`) [c](concepts/guarantees.md)\n" + code
    )


def test_a_setting_or_a_metric_links_its_entry() -> None:
    text = "# `quorate_raft_term`\n`raft.segment_bytes_max`, `quorate_raft_term`, "
    text += "[`quorate_raft_term`](../operate/observe.md)\n"
    text += "`limits.connections_max` of two, `ls -l`\n```\n`raft.segment_bytes_max`\n```\n"
    settings, metrics = "../reference/settings.md", "../reference/metrics.md"
    assert staging.relinked("docs/operate/capacity.md", text) == (
        "# `quorate_raft_term`\n"
        f"[`raft.segment_bytes_max`]({settings}#node.raft.segment_bytes_max), "
        f"[`quorate_raft_term`]({metrics}#quorate_raft_term), [`quorate_raft_term`](observe.md)\n"
        "`limits.connections_max` of two, `ls -l`\n```\n`raft.segment_bytes_max`\n```\n"
    )
