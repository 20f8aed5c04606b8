"""The OpenAPI document: what every route takes and answers, and why it may refuse."""

from typing import Any

import msgspec
from fastapi import FastAPI, Response

from ecoc.serving.messages import LIMITS, ErrorAnswer

REASONS = {
    400: "The request is wrong; the message names the field.",
    401: "The token is missing or wrong.",
    403: "The route is off, or the request comes from a page of another origin.",
    404: "There is no such thing.",
    405: "The route does not take this method.",
    408: "The body did not arrive in time.",
    409: "Another model is being loaded.",
    413: "The body is too large.",
    415: "The body is not application/json, or it is compressed.",
    422: "The model cannot be loaded; the old one goes on answering.",
    503: "The server is busy, not ready or stopping; try again after Retry-After seconds.",
}
"""What a status means, for people."""


def operation(body: Any, answer: Any, *statuses: int, many: bool = False, is_open: bool = False) -> dict[str, Any]:
    """Arguments of a route: the schemas of its body and of its answers; an answer that is `str` is plain text."""
    plain = {"text/plain": {"schema": {"type": "string"}}}
    responses: dict[int | str, dict[str, Any]] = {
        200: {"description": "The answer.", "content": plain if answer is str else _content(answer, many)},
    }
    for status in sorted(statuses if is_open else {*statuses, 401}):
        responses[status] = {"description": REASONS[status], "content": _content(ErrorAnswer)}
    extra: dict[str, Any] = {"security": []} if is_open else {}
    if body is not None:
        extra["requestBody"] = {"required": True, "content": _content(body, many, LIMITS.list_length)}
    return {"responses": responses, "openapi_extra": extra, "response_class": Response}


def _content(kind: Any, many: bool = False, most: int | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"$ref": f"#/components/schemas/{kind.__name__}"}
    if many:
        several: dict[str, Any] = {"type": "array", "items": schema, "minItems": 1}
        schema = {"anyOf": [schema, several if most is None else {**several, "maxItems": most}]}
    return {"application/json": {"schema": schema}}


def describe_bodies(app: FastAPI, bodies: tuple[Any, ...], *, has_token: bool) -> None:
    """Complete the document: schemas of the bodies, which FastAPI does not know, and the token."""
    document = app.openapi()
    _, schemas = msgspec.json.schema_components((*bodies, ErrorAnswer), ref_template="#/components/schemas/{name}")
    document["components"] = {"schemas": schemas}
    for operation in (operation for path in document["paths"].values() for operation in path.values()):
        if "HTTPValidationError" in str(operation["responses"].get("422")):  # FastAPI's own, which is answered by 400
            del operation["responses"]["422"]
    if has_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
