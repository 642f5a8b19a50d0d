"""The OpenAPI description of the interface, for the model that is served."""

from typing import Any

_ERROR = {"$ref": "#/components/schemas/Error"}
_REFUSALS = {
    "400": "The request is not as described here.",
    "408": "It was not sent in time.",
    "413": "It has too many bytes, images or rows.",
    "415": "It is of another content type.",
    "422": "No image can be read, or the table cannot.",
    "503": "The server has too much to do.",
}


def describe_api(about: dict[str, Any]) -> dict[str, Any]:
    """Describe the interface in OpenAPI 3.1, whose schemas are JSON Schema.

    Args:
        about: What ``GET /model`` answers.
    """
    refusals = {
        status: {"description": text, "content": _content(_ERROR)}
        for status, text in _REFUSALS.items()
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"Layline: {about['name']}",
            "version": about["version"],
            "summary": f"Grades {about['inputs']['kind']} with {about['method']}.",
        },
        "paths": {
            "/predict": {
                "post": {
                    "operationId": "predict",
                    "summary": "Predict images or rows, many at once.",
                    "requestBody": {"required": True, "content": _bodies(about)},
                    "responses": {
                        "200": {
                            "description": "A prediction for each, in the order they were sent.",
                            "content": _content({"$ref": "#/components/schemas/Predictions"}),
                        },
                        **refusals,
                    },
                }
            },
            "/model": _get("model", "What the model is and what it takes.", "Model"),
            "/health": _get("health", "Whether the server works.", "Health"),
            "/openapi.json": _get("openapi", "This description.", None),
        },
        "components": {"schemas": _schemas(about["classes"])},
    }


def _get(name: str, summary: str, schema: str | None) -> dict[str, Any]:
    described = {"type": "object"} if schema is None else {"$ref": f"#/components/schemas/{schema}"}
    answer = {"description": summary, "content": _content(described)}
    return {"get": {"operationId": name, "summary": summary, "responses": {"200": answer}}}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _bodies(about: dict[str, Any]) -> dict[str, Any]:
    """Describe what may be sent."""
    limits = about["limits"]
    if about["inputs"]["kind"] == "table":
        columns = {
            column["name"]: {"type": ["number", "boolean", "string", "null"]}
            if column["values"] is None
            else {"type": ["string", "number", "null"], "examples": column["values"][:3]}
            for column in about["inputs"]["columns"]
        }
        rows = {
            "type": "array",
            "minItems": 1,
            "maxItems": limits["rows"],
            "items": {"type": "object", "properties": columns},
        }
        form = {"file": {"type": "string", "description": "A CSV file with these columns."}}
        return _either({"rows": rows}, form)
    named = {
        "type": "object",
        "required": ["data"],
        "properties": {"name": {"type": "string"}, "data": {"type": "string"}},
    }
    images = {
        "type": "array",
        "minItems": 1,
        "maxItems": limits["files"],
        "items": {"anyOf": [{"type": "string", "contentEncoding": "base64"}, named]},
        "description": "Images in base64, or data URLs; with a name if they have one.",
    }
    files = {"type": "array", "maxItems": limits["files"], "items": {"type": "string"}}
    return _either({"images": images}, {"files": files})


def _either(json: dict[str, Any], form: dict[str, Any]) -> dict[str, Any]:
    (key,) = json
    described = {"type": "object", "required": [key], "properties": json}
    parts = {"type": "object", "properties": form, "description": "Any names of fields will do."}
    return {**_content(described), "multipart/form-data": {"schema": parts}}


def _schemas(classes: list[str]) -> dict[str, Any]:
    a_class = {"type": "string", "enum": classes}
    maybe_class = {"enum": [*classes, None]}
    share = {"type": "number", "minimum": 0, "maximum": 1}
    text, count = {"type": "string"}, {"type": "integer", "minimum": 0}
    a_place = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    prediction = _record(
        {
            "name": text,
            "predicted": a_class,
            "rank": {"type": "integer", "minimum": 0, "maximum": len(classes) - 1},
            "confidence": share | {"description": "The probability of the predicted class."},
            "low": maybe_class | {"description": "The lowest class of the range."},
            "high": maybe_class | {"description": "The highest class of the range."},
            "review": {"type": ["boolean", "null"], "description": "Should a person look?"},
            "probabilities": _record(dict.fromkeys(classes, share)),
            "place": a_place | {"description": "Where it is drawn on the layout."},
        }
    )
    unread = _record({"name": text, "error": text})
    items = {"type": "array", "items": {"anyOf": [prediction, unread]}}
    error = _record({"error": text, "predictions": items})
    optional_object = {"type": ["object", "null"]}
    return {
        "Predictions": _record({"predictions": items}),
        "Error": error | {"required": ["error"]},
        "Health": _record(
            {
                "status": {"const": "ok"},
                "model": text,
                "version": text,
                "waiting": count,
                "answered": count,
            }
        ),
        "Model": _record(
            {
                "name": text,
                "version": text,
                "method": text,
                "backbone": text,
                "classes": {"type": "array", "items": text, "minItems": 2},
                "inputs": {
                    "type": "object",
                    "required": ["kind"],
                    "properties": {"kind": {"enum": ["images", "table"]}},
                },
                "decode": text,
                "calibration": _record({"temperature": {"type": "number"}, "samples": count}),
                "coverage": {"type": ["number", "null"]},
                "review": _record({"share": share, "at_most": share}) | optional_object,
                "layout": _record(
                    {
                        "kind": {"enum": ["plane", "line", "mean"]},
                        "by_direction": {"type": "boolean"},
                        "proxies": {"type": "array", "items": a_place},
                    }
                ),
                "trained_on": optional_object | {"additionalProperties": count},
                "tested": optional_object,
                "limits": {"type": "object", "additionalProperties": {"type": "number"}},
            }
        ),
    }


def _record(properties: dict[str, Any]) -> dict[str, Any]:
    """Describe an object that has all of these and nothing else."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
