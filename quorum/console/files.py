"""The files of the console's page, as they stand in the package: read once, sent as they are. No state."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import Final

from aiohttp import web

_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}


def add_files(app: web.Application) -> None:
    """Let an application serve every file of the page."""
    for file in (files("quorum.console") / "static").iterdir():
        content_type = _TYPES.get(file.name.rpartition(".")[2])
        if content_type is None:
            continue
        _add(app, f"/{file.name}", file.read_bytes(), content_type)
        if file.name == "index.html":
            _add(app, "/", file.read_bytes(), content_type)
        if file.name == "icon.svg":
            # Browsers ask for it whatever the page names.
            _add(app, "/favicon.ico", file.read_bytes(), content_type)


def _add(app: web.Application, path: str, content: bytes, content_type: str) -> None:
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"Content-Type": content_type, "ETag": tag, "Cache-Control": "no-cache"}

    async def answer(request: web.Request) -> web.Response:
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag, "Cache-Control": "no-cache"})
        return web.Response(body=content, headers=headers)

    app.router.add_get(path, answer)
