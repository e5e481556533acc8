"""docs/reference/endpoints.md: every endpoint of an admin port, as it is declared.

Source: quorum/admin/endpoint.py, quorum/node/node_state.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from quorum.admin.app import STATUS_ENDPOINTS
from quorum.admin.endpoint import AdminEndpoint
from quorum.admin.reading import Field
from quorum.node.node_state import ENDPOINTS
from tests.site.tables import NOTE, cell, code, joined, sentence, table

_INT64_MAX: Final = (1 << 63) - 1

_HEAD: Final = f"""# Endpoints of the admin port

Every method and path that an admin port answers, with what it takes. {NOTE}

- [HTTP](http.md) has the rules for all of it: errors, tokens, roles, pages.
- `GET /v1/openapi.json` describes the same, with the schemas of all answers. A GET takes HEAD, too.
- A role may do what those before it may: reader, operator, admin. Without tokens everybody on loopback may do
  everything.
- An error is `application/problem+json` with any status of 400 and above.
"""


def _value(field: Field) -> str:
    """Return what a field may be, in words."""
    schema: Any = field.schema()
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "enum" in schema:
        return " or ".join(code(each) for each in schema["enum"])
    if schema["type"] == "integer":
        most = f" to {schema['maximum']}" if schema["maximum"] < _INT64_MAX else ""
        return f"a whole number from {schema['minimum']}{most}"
    names = {"string": "a text", "boolean": "`true` or `false`", "array": "a list"}
    return "base64, or null" if isinstance(schema["type"], list) else names[schema["type"]]


def _default(field: Field) -> str:
    schema: Any = field.schema()
    if field.needed:
        return "must be given"
    return code(json.dumps(schema["default"])) if "default" in schema else ""


def _fields(endpoint: AdminEndpoint) -> Iterator[tuple[str, ...]]:
    for where, fields in (
        ("path", endpoint.places),
        ("query", endpoint.parameters),
        ("body", endpoint.body or ()),
    ):
        for field in fields:
            yield (
                code(field.name),
                where,
                _value(field),
                _default(field),
                cell(sentence(field.says.text)),
            )


def _endpoint(endpoint: AdminEndpoint) -> Iterator[str]:
    anchor = re.sub(r"\W+", "-", f"{endpoint.method}{endpoint.path}".lower()).strip("-")
    yield f'### <a id="{anchor}"></a>{endpoint.method} {endpoint.path}'
    good = "200" if endpoint.method != "POST" or not endpoint.status else ""
    statuses = ", ".join(filter(None, (good, *map(str, endpoint.status))))
    content = ", ".join(code(each) for each in endpoint.content)
    role = "" if endpoint.path in ("/livez", "/readyz") else f" Role: {endpoint.role.name.lower()}."
    yield f"{sentence(cell(endpoint.summary))}.{role} Answers {statuses} with {content}."
    properties: Any = endpoint.answer.get("properties", {})
    if properties:
        yield f"The answer has {', '.join(code(each) for each in properties)}."
    if rows := list(_fields(endpoint)):
        yield table(("field", "in", "value", "default", "what it says"), rows)


def page() -> str:
    """Return the page as the endpoints are declared."""
    shared = [f"{each.method} {each.path}" for each in STATUS_ENDPOINTS]
    parts = [_HEAD, "## Nodes and brokers"]
    for each in STATUS_ENDPOINTS:
        parts += _endpoint(each)
    parts.append("## Nodes")
    for each in ENDPOINTS:
        if f"{each.method} {each.path}" not in shared:
            parts += _endpoint(each)
    return joined(parts)
