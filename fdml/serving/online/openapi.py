"""The OpenAPI description of the endpoint, and a page of it that loads nothing from elsewhere. They name no model."""

from __future__ import annotations

from functools import cache
from html import escape
from importlib import metadata
from typing import Any

from fdml.serving.online.tensors import BOOL, DATATYPES

_ERRORS = {
    400: "The request cannot be read: the message names the tensor, and the row from 1 on.",
    401: "The request has no token.",
    403: "The token is another one, or a party does not let this endpoint's party ask.",
    404: "There is no such model or version.",
    408: "The body did not come in time.",
    409: "A party has another version of this model.",
    413: "The body is too long, or there are too many rows.",
    415: "The body is compressed, or of another type.",
    429: "A party's privacy budget or its rows of this hour are spent, or too many requests wait.",
    503: "A party is away, and without it no row has a score.",
    504: "A party has not answered within the deadline.",
}
_TEXT = {"type": "string"}
_PARAMETERS = {"type": "object"}
_SHAPE = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "maxItems": 2}


def _tensor(required: list[str], *types: str, **more: Any) -> dict[str, Any]:
    kinds = {"type": "string", "enum": [*DATATYPES, *types]}
    properties = {"name": _TEXT, "datatype": kinds, "shape": _SHAPE}
    return {"type": "object", "required": required, "properties": {**properties, "parameters": _PARAMETERS, **more}}


def _object(properties: dict[str, Any], required: list[str] | None = None) -> dict[str, Any]:
    return {"type": "object", "required": list(properties) if required is None else required, "properties": properties}


def _list(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _schemas() -> dict[str, Any]:
    named = _object({"name": _TEXT, "datatype": _TEXT, "shape": _list({"type": "integer"})})
    given = _tensor(["name", "datatype", "shape"], data={"type": "array"})
    wanted = _object({"name": _TEXT, "parameters": _PARAMETERS}, ["name"])
    return {
        "Error": _object({"error": _TEXT}),
        "Server": _object({"name": _TEXT, "version": _TEXT, "extensions": _list(_TEXT)}),
        "Live": _object({"live": {"type": "boolean"}}),
        "Ready": _object({"name": _TEXT, "ready": {"type": "boolean"}, "parameters": _PARAMETERS}, ["ready"]),
        "Model": _object(
            {
                "name": _TEXT,
                "versions": _list(_TEXT),
                "run": _TEXT,
                "platform": _TEXT,
                "inputs": _list(named),
                "outputs": _list(named),
            }
        ),
        "Request": _object(
            {
                "id": {"type": "string", "maxLength": 200},
                "parameters": _PARAMETERS,
                "inputs": {**_list(given), "minItems": 1, "maxItems": 64},
                "outputs": {**_list(wanted), "maxItems": 64},
            },
            ["inputs"],
        ),
        "Response": _object(
            {
                "model_name": _TEXT,
                "model_version": _TEXT,
                "id": _TEXT,
                "parameters": _object({"parties_missing": _TEXT, "rows_without_score": {"type": "integer"}}),
                "outputs": _list(_tensor(["name", "datatype", "shape"], BOOL, data={"type": "array"})),
            },
            ["model_name", "model_version", "parameters", "outputs"],
        ),
    }


def _content(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def _operation(summary: str, schema: str, *statuses: int, is_open: bool = False, **more: Any) -> dict[str, Any]:
    responses: dict[str, Any] = {"200": {"description": "Done.", "content": _content(schema)}}
    for status in statuses:
        responses[str(status)] = {"description": _ERRORS[status], "content": _content("Error")}
    found = {"summary": summary, "responses": responses, **more}
    return {**found, "security": []} if is_open else found


def _model_paths(place: str, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    model = _operation("The model's inputs, outputs and versions.", "Model", 401, 403, 404)
    ready = _operation("Whether requests would have scores now.", "Ready", 401, 403, 404)
    ready["responses"]["503"] = {"description": "Not now: the body says who is missing.", "content": _content("Ready")}
    infer = _operation(
        "The joint scores of ids. Inputs are the columns of the ids; rows that lack a party say so in `missing` and "
        "`why`, and in the parameters of the response.",
        "Response",
        *_ERRORS,
        requestBody={"required": True, "content": _content("Request")},
    )
    infer["responses"]["200"]["content"]["application/octet-stream"] = {}  # where binary outputs are asked for
    return {
        place: {"get": model, "parameters": parameters},
        f"{place}/ready": {"get": ready, "parameters": parameters},
        f"{place}/infer": {"post": infer, "parameters": parameters},
    }


def _metrics() -> dict[str, Any]:
    found = _operation("Requests and their times, in the text format of Prometheus.", "Server", 401, 403)
    found["responses"]["200"]["content"] = {"text/plain": {"schema": _TEXT}}
    return found


@cache
def description() -> dict[str, Any]:
    """As JSON."""
    name = {
        "name": "name",
        "in": "path",
        "required": True,
        "schema": _TEXT,
        "description": "The name of a run; or that of the federation, for the promoted model or else the newest.",
    }
    version = {
        "name": "version",
        "in": "path",
        "required": True,
        "schema": _TEXT,
        "description": "The version of the model, or its first characters.",
    }
    ready = _operation("Whether requests would have scores now.", "Ready", is_open=True)
    ready["responses"]["503"] = {"description": "Not now.", "content": _content("Ready")}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fdml",
            "version": metadata.version("fdml"),
            "description": "Joint scores by Open Inference Protocol v2, with its binary tensor extension.",
        },
        "paths": {
            "/v2": {"get": _operation("The endpoint's name and extensions.", "Server", 401, 403)},
            "/v2/health/live": {"get": _operation("Whether the endpoint runs.", "Live", is_open=True)},
            "/v2/health/ready": {"get": ready},
            "/metrics": {"get": _metrics()},
            **_model_paths("/v2/models/{name}", [name]),
            **_model_paths("/v2/models/{name}/versions/{version}", [name, version]),
        },
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


@cache
def page() -> str:
    """As HTML, without scripts."""
    sections = []
    for path, operations in description()["paths"].items():
        for method, operation in operations.items():
            if method == "parameters":
                continue
            statuses = "".join(
                f"<tr><td>{status}</td><td>{escape(found['description'])}</td></tr>"
                for status, found in operation["responses"].items()
            )
            sections.append(
                f"<h2><code>{method.upper()} {escape(path)}</code></h2><p>{escape(operation['summary'])}</p>"
                f"<table>{statuses}</table>"
            )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>fdml endpoint</title>'
        "<style>body{font:16px/1.5 sans-serif;max-width:50em;margin:2em auto;padding:0 1em}"
        "td{padding:0 1em 0 0;vertical-align:top}code{font-size:15px}</style></head><body>"
        "<h1>fdml endpoint</h1><p>Open Inference Protocol v2 with its binary tensor extension; the full description is "
        f'<a href="/openapi.json">openapi.json</a>.</p>{"".join(sections)}</body></html>'
    )
