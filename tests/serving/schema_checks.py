"""Loaded by schemathesis: what the server refuses although its document allows it must have a reason beyond schemas."""

import re
from typing import Any

import schemathesis
from schemathesis.generation import GenerationMode

# These depend on the model, on another field, or on how a number is written.
BEYOND_SCHEMAS = re.compile(
    r"^only: none of these items is in the catalogue$|^rank_by .* takes no|^Expected `int( \| null)?`, got `float`|"
    r"^no control head was trained|^The path must lie in the folder|^The body has more than|"
    "File name too long|: no such"
)


@schemathesis.check
def what_the_document_allows_is_answered(ctx: Any, response: Any, case: Any) -> None:
    """Allowed data is answered, unless a model of another name is asked for or no schema can say what is wrong."""
    is_allowed = case.meta is not None and case.meta.generation.mode is GenerationMode.POSITIVE
    if not is_allowed or response.status_code < 400 or response.status_code in (401, 404, 405):
        return
    message = response.json()["error"]["message"]
    assert BEYOND_SCHEMAS.search(message), f"refused by {response.status_code}: {message}"


@schemathesis.check
def no_answer_holds_a_traceback(ctx: Any, response: Any, case: Any) -> None:
    """Nor does it fail."""
    assert response.status_code < 500
    assert b"Traceback" not in response.content
