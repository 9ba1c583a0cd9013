"""The part of the SARIF 2.1.0 schema (OASIS, errata 01) that our logs use, transcribed: the objects with all
names that they may have and no others, what is required, and the values of enumerations. Objects that we
never write are left open."""

from __future__ import annotations

from typing import Any

__all__ = ["SARIF"]

_TEXT = {"type": "string"}
_LEVEL = {"enum": ["none", "note", "warning", "error"]}


def _object(names: str, required: tuple[str, ...] = (), **known: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {name: {} for name in names.split()}
    assert set(known) <= set(properties)
    bag = {"properties": {"type": "object"}}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties | known | bag,
    }


def _some(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


_MESSAGE = _object("text markdown id arguments", text=_TEXT) | {
    "anyOf": [{"required": ["text"]}, {"required": ["id"]}]
}
_DESCRIPTOR = _object(
    "id deprecatedIds guid deprecatedGuids name deprecatedNames shortDescription fullDescription "
    "messageStrings defaultConfiguration helpUri help relationships",
    ("id",),
    id=_TEXT,
    name=_TEXT,
    helpUri={"type": "string", "format": "uri"},
    shortDescription=_object("text markdown", ("text",), text=_TEXT),
    defaultConfiguration=_object("enabled level rank parameters", level=_LEVEL),
)
_COMPONENT = _object(
    "guid name organization product productSuite shortDescription fullDescription fullName version "
    "semanticVersion dottedQuadFileVersion releaseDateUtc downloadUri informationUri globalMessageStrings "
    "notifications rules taxa locations language contents isComprehensive localizedDataSemanticVersion "
    "minimumRequiredLocalizedDataSemanticVersion associatedComponent translationMetadata "
    "supportedTaxonomies",
    ("name",),
    name=_TEXT,
    organization=_TEXT,
    fullName=_TEXT,
    version=_TEXT,
    informationUri={"type": "string", "format": "uri"},
    isComprehensive={"type": "boolean"},
    rules=_some(_DESCRIPTOR),
    taxa=_some(_DESCRIPTOR),
)
_LOCATION = _object(
    "id physicalLocation logicalLocations message annotations relationships",
    logicalLocations=_some(
        _object(
            "name index fullyQualifiedName decoratedName parentIndex kind",
            name=_TEXT,
            fullyQualifiedName=_TEXT,
            kind=_TEXT,
        )
    ),
)
_REFERENCE = _object(
    "id index guid toolComponent", id=_TEXT, toolComponent=_object("name index guid", name=_TEXT)
) | {"anyOf": [{"required": ["index"]}, {"required": ["guid"]}, {"required": ["id"]}]}
_RESULT = _object(
    "ruleId ruleIndex rule kind level message analysisTarget locations guid correlationGuid occurrenceCount "
    "partialFingerprints fingerprints stacks codeFlows graphs graphTraversals relatedLocations suppressions "
    "baselineState rank attachments hostedViewerUri workItemUris provenance fixes taxa webRequest "
    "webResponse",
    ("message",),
    ruleId=_TEXT,
    ruleIndex={"type": "integer", "minimum": -1},
    kind={"enum": ["notApplicable", "pass", "fail", "review", "open", "informational"]},
    level=_LEVEL,
    message=_MESSAGE,
    locations=_some(_LOCATION),
    partialFingerprints={"type": "object", "additionalProperties": _TEXT},
    taxa=_some(_REFERENCE),
)
_INVOCATION = _object(
    "commandLine arguments responseFiles startTimeUtc endTimeUtc exitCode ruleConfigurationOverrides "
    "notificationConfigurationOverrides toolExecutionNotifications toolConfigurationNotifications "
    "exitCodeDescription exitSignalName exitSignalNumber processStartFailureMessage executionSuccessful "
    "machine account processId executableLocation workingDirectory environmentVariables stdin stdout stderr "
    "stdoutStderr",
    ("executionSuccessful",),
    commandLine=_TEXT,
    endTimeUtc={"type": "string", "format": "date-time"},
    executionSuccessful={"type": "boolean"},
)
_RUN = _object(
    "tool invocations conversion language versionControlProvenance originalUriBaseIds artifacts "
    "logicalLocations graphs results automationDetails runAggregates baselineGuid redactionTokens "
    "defaultEncoding defaultSourceLanguage newlineSequences columnKind externalPropertyFileReferences "
    "threadFlowLocations taxonomies addresses translations policies webRequests webResponses "
    "specialLocations",
    ("tool",),
    tool=_object("driver extensions", ("driver",), driver=_COMPONENT),
    invocations=_some(_INVOCATION),
    results=_some(_RESULT),
    taxonomies=_some(_COMPONENT),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
)
SARIF: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["version", "runs"],
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"enum": ["2.1.0"]},
        "runs": _some(_RUN),
        "inlineExternalProperties": {},
        "properties": {},
    },
}
