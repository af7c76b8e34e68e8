"""The part of SARIF 2.1.0 that our reports use, as a JSON schema.

Written after the OASIS standard "Static Analysis Results Interchange Format (SARIF) Version 2.1.0 Plus
Errata 01": the section of each object stands beside it. Every object allows only properties that the
standard defines and that we write, so that a misspelled one fails.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
LEVEL: Schema = {"enum": ["none", "note", "warning", "error"]}
POSITIVE: Schema = {"type": "integer", "minimum": 1}


def record(required: str, **properties: Schema) -> Schema:
    """An object with these properties and no others."""
    return {"type": "object", "required": required.split(), "properties": properties, "additionalProperties": False}


def unique(items: Schema, least: int = 0) -> Schema:
    """An array without repeated items."""
    return {"type": "array", "items": items, "minItems": least, "uniqueItems": True}


BAG: Schema = {"type": "object", "properties": {"tags": unique({"type": "string"})}}  # 3.8 property bags
MESSAGE = record("text", text=TEXT)  # 3.11 message
MULTIFORMAT = record("text", text=TEXT, markdown=TEXT)  # 3.12 multiformatMessageString
ARTIFACT_LOCATION = record("uri", uri={"type": "string", "format": "uri-reference", "pattern": r"^[^\\ ]+$"}, uriBaseId=TEXT)  # 3.4
REGION = record("startLine", startLine=POSITIVE, startColumn=POSITIVE, endLine=POSITIVE, endColumn=POSITIVE)  # 3.30 region
PHYSICAL = record("artifactLocation", artifactLocation=ARTIFACT_LOCATION, region=REGION)  # 3.29 physicalLocation
LOGICAL = record("name", name=TEXT, fullyQualifiedName=TEXT, kind=TEXT)  # 3.33 logicalLocation
LOCATION = record(  # 3.28 location
    "physicalLocation",
    id={"type": "integer", "minimum": -1},
    physicalLocation=PHYSICAL,
    logicalLocations=unique(LOGICAL),
    message=MESSAGE,
)
REPLACEMENT = record("deletedRegion", deletedRegion=REGION, insertedContent=record("text", text={"type": "string"}))  # 3.57
CHANGE = record(  # 3.56 artifactChange
    "artifactLocation replacements",
    artifactLocation=ARTIFACT_LOCATION,
    replacements={"type": "array", "minItems": 1, "items": REPLACEMENT},
)
FIX = record("artifactChanges", description=MESSAGE, artifactChanges=unique(CHANGE, 1))  # 3.55 fix
RESULT = record(  # 3.27 result
    "ruleId message locations",
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": 0},
    level=LEVEL,
    message=MESSAGE,
    rank={"type": "number", "minimum": 0, "maximum": 100},
    locations={"type": "array", "items": LOCATION, "minItems": 1},
    relatedLocations=unique(LOCATION),
    partialFingerprints={"type": "object", "additionalProperties": {"type": "string"}},
    fixes=unique(FIX),
    properties=BAG,
)
RULE = record(  # 3.49 reportingDescriptor
    "id",
    id=TEXT,
    name=TEXT,
    shortDescription=MULTIFORMAT,
    fullDescription=MULTIFORMAT,
    help=MULTIFORMAT,
    helpUri={"type": "string", "format": "uri"},
    defaultConfiguration=record("level", level=LEVEL, enabled={"type": "boolean"}),  # 3.50 reportingConfiguration
    properties=BAG,
)
DRIVER = record(  # 3.19 toolComponent
    "name",
    name=TEXT,
    version=TEXT,
    semanticVersion=TEXT,
    informationUri={"type": "string", "format": "uri"},
    rules=unique(RULE),
)
INVOCATION = record(  # 3.20 invocation, 3.58 notification
    "executionSuccessful",
    executionSuccessful={"type": "boolean"},
    toolExecutionNotifications={"type": "array", "items": record("message", level=LEVEL, message=MESSAGE)},
)
RUN = record(  # 3.14 run
    "tool results",
    tool=record("driver", driver=DRIVER),
    invocations={"type": "array", "items": INVOCATION},
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    results={"type": "array", "items": RESULT},
)
LOG: Schema = {  # 3.13 sarifLog
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **record(
        "version runs",
        **{"$schema": {"type": "string", "format": "uri"}, "version": {"const": "2.1.0"}, "runs": {"type": "array", "items": RUN}},
    ),
}
