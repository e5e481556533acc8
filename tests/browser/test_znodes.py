"""The tree in a real browser: pages, formats, changes and their conflicts, history and the past."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient
from playwright.sync_api import Locator, expect

from tests.browser.conftest import WAIT_S, Pages
from tests.support.nodes import eventually


def dialog(pages: Pages) -> Locator:
    return pages.tab.locator("[role=dialog]")


def now(zookeeper: KazooClient, path: str) -> bytes | None:
    """What a znode holds, after all that the console was told is done: its node may be ahead of ours."""
    zookeeper.sync(path)
    return zookeeper.get(path)[0] if zookeeper.exists(path) else None


def test_a_znode_is_shown_and_follows_what_others_write(pages: Pages, zookeeper: KazooClient) -> None:
    zookeeper.create("/shown", b'{"big": 12345678901234567890, "list": []}')
    tab = pages.open("#/znodes?path=/shown")
    expect(tab.locator("main")).to_have_attribute("data-name", "/shown")
    expect(pages.get("version")).to_have_text("0")
    tab.get_by_label("Format").select_option("json")
    expect(pages.get("data")).to_have_text('{\n  "big": 12345678901234567890,\n  "list": []\n}')
    tab.get_by_label("Format").select_option("hex")
    expect(pages.get("data")).to_contain_text("000000  7b 22 62")
    tab.get_by_label("Format").select_option("text")
    zookeeper.set("/shown", b"new words")
    expect(pages.get("data")).to_have_text("new words")
    expect(pages.get("version")).to_have_text("1")
    tab.get_by_role("tab", name="ACL").click()
    expect(pages.get("acl")).to_have_text("worldanyonerwcda")


def test_foreign_texts_are_shown_as_escapes(pages: Pages, zookeeper: KazooClient) -> None:
    zookeeper.create("/odd-\u202egnp.exe", "\x1b[31mred\u202e".encode())
    pages.open("#/znodes?path=/")
    expect(pages.tab.get_by_role("link", name=r"odd-\u202egnp.exe")).to_be_visible()
    pages.open("#/znodes?path=%2Fodd-%E2%80%AEgnp.exe")
    expect(pages.get("data")).to_have_text(r"\x1b[31mred\u202e")


def test_children_come_by_pages_and_search(pages: Pages, zookeeper: KazooClient) -> None:
    zookeeper.ensure_path("/crowd")
    for number in range(230):
        zookeeper.create(f"/crowd/n{number:03d}")
    tab = pages.open("#/znodes?path=/crowd")
    expect(pages.get("znode")).to_have_count(200)
    pages.press("More")
    expect(pages.get("znode")).to_have_count(230)
    expect(tab.get_by_role("button", name="More")).to_have_count(0)
    tab.get_by_label("Search children").fill("n22")
    expect(pages.get("znode")).to_have_count(10)
    pages.get("znode", path="/crowd/n222").get_by_role("link").click()
    expect(tab.locator("main[data-state=ready]")).to_have_attribute("data-name", "/crowd/n222")


def test_an_edit_is_previewed_confirmed_and_told(pages: Pages, zookeeper: KazooClient) -> None:
    zookeeper.create("/edit-me", b"before")
    tab = pages.open("#/znodes?path=/edit-me")
    pages.press("Edit")
    tab.get_by_label("Data").fill("never sent")
    tab.keyboard.press("Escape")
    expect(dialog(pages)).to_have_count(0)
    pages.press("Edit")
    dialog(pages).get_by_label("Data").fill("after")
    dialog(pages).get_by_role("button", name="Preview").click()
    expect(pages.get("preview")).to_contain_text("version 0 becomes 1")
    pages.check()
    dialog(pages).get_by_role("button", name="Confirm").click()
    expect(dialog(pages)).to_have_count(0)
    expect(tab.get_by_role("status")).to_have_text("/edit-me is set")
    expect(pages.get("data")).to_have_text("after")
    assert now(zookeeper, "/edit-me") == b"after"


def test_bytes_that_are_no_text_are_edited_as_hex_and_never_guessed(
    pages: Pages, zookeeper: KazooClient
) -> None:
    # A text area would turn the line break into another one.
    zookeeper.create("/lines", b"a\r\n")
    pages.open("#/znodes?path=/lines")
    pages.press("Edit")
    box, preview = dialog(pages), dialog(pages).get_by_role("button", name="Preview")
    expect(box.get_by_label("Data")).to_have_value("610d0a")
    for wrong in ("610d0", "610d0g"):
        box.get_by_label("Data").fill(wrong)
        preview.click()
        expect(box.get_by_role("alert")).to_contain_text("two hex digits a byte")
    box.get_by_label("Data").fill("62 0d 0A")
    preview.click()
    box.get_by_role("button", name="Confirm").click()
    expect(box).to_have_count(0)
    assert now(zookeeper, "/lines") == b"b\r\n"


def test_a_conflict_is_explained_and_what_was_typed_stays(pages: Pages, zookeeper: KazooClient) -> None:
    zookeeper.create("/both", b"first")
    pages.open("#/znodes?path=/both")
    pages.press("Edit")
    box = dialog(pages)
    box.get_by_label("Data").fill("mine")
    box.get_by_role("button", name="Preview").click()
    expect(pages.get("preview")).to_be_visible()
    zookeeper.set("/both", b"theirs")
    box.get_by_role("button", name="Confirm").click()
    conflict = pages.get("conflict")
    for part in ("version 0", "version 1", "theirs"):
        expect(conflict).to_contain_text(part)
    expect(box.get_by_label("Data")).to_have_value("mine")
    assert now(zookeeper, "/both") == b"theirs"
    conflict.get_by_role("button").click()
    box.get_by_role("button", name="Preview").click()
    box.get_by_role("button", name="Confirm").click()
    expect(box).to_have_count(0)
    assert now(zookeeper, "/both") == b"mine"
    # The browser itself logs an answer of 409.
    pages.expected = ("the server responded with a status of 409",)


def test_a_deletion_wants_the_name_and_can_be_put_back(pages: Pages, zookeeper: KazooClient) -> None:
    zookeeper.create("/precious", b"do not lose")
    tab = pages.open("#/znodes?path=/precious")
    pages.press("Delete")
    box = dialog(pages)
    box.get_by_role("button", name="Preview").click()
    expect(pages.get("preview")).to_be_visible()
    confirm = box.get_by_role("button", name="Confirm")
    box.get_by_label("Type the name").fill("other")
    expect(confirm).to_be_disabled()
    box.get_by_label("Type the name").fill("precious")
    confirm.click()
    expect(pages.get("deleted")).to_be_visible()
    pages.wait("ready")
    expect(pages.get("data")).to_have_text("do not lose")
    assert now(zookeeper, "/precious") is None
    tab.get_by_role("tab", name="History").click()
    expect(pages.get("history")).to_have_count(2)
    pages.get("history", op="d").get_by_role("button").first.click()
    expect(tab.get_by_label("Difference to the version before")).to_contain_text("- do not lose")
    pages.check()
    pages.press("Put back")
    box.get_by_role("button", name="Preview").click()
    box.get_by_role("button", name="Confirm").click()
    expect(pages.get("version")).to_have_text("0")
    assert now(zookeeper, "/precious") == b"do not lose"


def test_an_old_value_is_put_back(pages: Pages, zookeeper: KazooClient) -> None:
    zookeeper.create("/older", b"old")
    zookeeper.set("/older", b"new")
    pages.open("#/znodes?path=/older&tab=history")
    pages.get("history", op="c").get_by_role("button", name="Put back").click()
    box = dialog(pages)
    expect(box.get_by_label("Data")).to_have_value("old")
    box.get_by_role("button", name="Preview").click()
    box.get_by_role("button", name="Confirm").click()
    expect(pages.get("history")).to_have_count(3)
    assert now(zookeeper, "/older") == b"old"


def test_create_below_a_znode(pages: Pages, zookeeper: KazooClient) -> None:
    zookeeper.create("/parent")
    tab = pages.open("#/znodes?path=/parent")
    pages.press("Create")
    box = dialog(pages)
    box.get_by_label("Name").fill("child")
    box.get_by_label("Data").fill("born")
    box.get_by_role("button", name="Preview").click()
    box.get_by_role("button", name="Confirm").click()
    expect(tab.locator("main[data-state=ready]")).to_have_attribute("data-name", "/parent/child")
    assert now(zookeeper, "/parent/child") == b"born"


def test_the_slider_goes_back_to_before_a_deletion(pages: Pages, zookeeper: KazooClient) -> None:
    zookeeper.create("/then", b"it was so")
    zxid = zookeeper.exists("/then").czxid
    zookeeper.delete("/then")
    tab = pages.open("#/znodes?path=/then")
    expect(pages.get("deleted")).to_be_visible()
    slider = tab.get_by_role("slider", name="As of")
    eventually(lambda: zxid <= int(slider.get_attribute("max") or ""), WAIT_S, "the slider reaches to now")
    assert int(slider.get_attribute("min") or "") <= zxid
    slider.fill(str(zxid))
    expect(tab.locator(f"main[data-state=ready][data-as-of='{zxid}']")).to_be_attached()
    expect(pages.get("deleted")).to_have_count(0)
    expect(pages.get("data")).to_have_text("it was so")
    expect(tab.get_by_role("button", name="Edit")).to_have_count(0)
    pages.check()
    pages.press("Now")
    expect(pages.get("deleted")).to_be_visible()
    assert tab.locator("main").get_attribute("data-as-of") is None
    pages.open("#/znodes?path=/never-was", state="empty")


@pytest.mark.parametrize("deleted_first", [True, False])
def test_deleted_nodes_are_listed_when_asked_for(
    pages: Pages, zookeeper: KazooClient, *, deleted_first: bool
) -> None:
    parent = f"/list-{deleted_first}"
    zookeeper.create(parent)
    zookeeper.create(f"{parent}/stays")
    zookeeper.create(f"{parent}/goes")
    if deleted_first:
        zookeeper.delete(f"{parent}/goes")
    tab = pages.open(f"#/znodes?path={parent}")
    if not deleted_first:
        zookeeper.delete(f"{parent}/goes")
    expect(pages.get("znode")).to_have_count(1)
    tab.get_by_label("Deleted nodes").check()
    expect(pages.get("znode")).to_have_count(2)
    gone = pages.get("znode", path=f"{parent}/goes")
    assert int(gone.get_attribute("data-deleted") or "") > 0
    gone.get_by_role("link").click()
    expect(pages.get("deleted")).to_be_visible()
