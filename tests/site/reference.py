"""The pages that are made from the code: where each lies, and what makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.compatibility import page as compatibility
from tests.site import cli_page, errors_page, http_page, metrics_page, settings_page
from tests.support import moves_page

#: {path in the repository: what returns the page}
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "docs/reference/settings.md": settings_page.page,
    "docs/reference/metrics.md": metrics_page.page,
    "docs/reference/errors.md": errors_page.page,
    "docs/reference/cli.md": cli_page.page,
    "docs/reference/endpoints.md": http_page.page,
    "docs/reference/compatibility.md": compatibility.page,
    "docs/internals/moves.md": moves_page.page,
}
