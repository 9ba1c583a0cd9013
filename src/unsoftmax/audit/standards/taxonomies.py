"""What an audit's outcome is called in the taxonomies of the trade. Ids and names are those that were
published; each taxonomy names the version that they were taken from. docs/standards.md names the sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unsoftmax.families import Family
from unsoftmax.recovery.result import Result

__all__ = ["ATLAS", "NIST", "OWASP_LLM", "OWASP_ML", "Entry", "Taxonomy", "entries_for"]


@dataclass(frozen=True)
class Taxonomy:
    """A published list of threats."""

    name: str
    title: str
    version: str
    organization: str
    url: str


@dataclass(frozen=True)
class Entry:
    """One threat of a taxonomy."""

    taxonomy: Taxonomy
    id: str
    name: str
    url: str

    def as_json(self) -> dict[str, Any]:
        """The facts as plain data."""
        return {
            "taxonomy": self.taxonomy.name,
            "version": self.taxonomy.version,
            "id": self.id,
            "name": self.name,
            "url": self.url,
        }


ATLAS = Taxonomy(
    "MITRE ATLAS",
    "Adversarial Threat Landscape for AI Systems",
    "5.6.0",
    "The MITRE Corporation",
    "https://atlas.mitre.org",
)
OWASP_ML = Taxonomy(
    "OWASP ML Top 10",
    "OWASP Machine Learning Security Top Ten",
    "2023",
    "OWASP Foundation",
    "https://owasp.org/www-project-machine-learning-security-top-10/",
)
OWASP_LLM = Taxonomy(
    "OWASP LLM Top 10",
    "OWASP Top 10 for LLM Applications",
    "2025",
    "OWASP Foundation",
    "https://genai.owasp.org/llm-top-10/",
)
NIST = Taxonomy(
    "NIST AI 100-2",
    "Adversarial Machine Learning: A Taxonomy and Terminology of Attacks and Mitigations",
    "e2025",
    "National Institute of Standards and Technology",
    "https://doi.org/10.6028/NIST.AI.100-2e2025",
)

_ATLAS_ENTRIES = tuple(
    Entry(ATLAS, key, name, f"https://atlas.mitre.org/techniques/{key}")
    for key, name in (
        ("AML.T0024", "Exfiltration via AI Inference API"),
        ("AML.T0024.002", "Extract AI Model"),
        ("AML.T0048.004", "AI Intellectual Property Theft"),
    )
)
_MODEL_THEFT = Entry(
    OWASP_ML,
    "ML05:2023",
    "Model Theft",
    "https://owasp.org/www-project-machine-learning-security-top-10/docs/ML05_2023-Model_Theft",
)
_UNBOUNDED = Entry(
    OWASP_LLM,
    "LLM10:2025",
    "Unbounded Consumption",
    "https://genai.owasp.org/llmrisk/llm102025-unbounded-consumption/",
)
_EXTRACTION = Entry(NIST, "NISTAML.031", "Model Extraction", NIST.url)
_LANGUAGE = (Family.LANGUAGE_MODEL.value, Family.TOKENS.value)


def entries_for(result: Result) -> tuple[Entry, ...]:
    """The threats that a result shows to be real; none where nothing leaked. LLM10, whose fifth example is
    model extraction through an API, counts for targets that take tokens.

    >>> import unsoftmax
    >>> [entry.id for entry in entries_for(unsoftmax.recover("demo:single-head?d=4"))]
    ['AML.T0024', 'AML.T0024.002', 'AML.T0048.004', 'ML05:2023', 'NISTAML.031']
    """
    if not result.status.recovered and not result.parts:
        return ()
    for_language = (_UNBOUNDED,) if result.family in _LANGUAGE else ()
    return (*_ATLAS_ENTRIES, _MODEL_THEFT, *for_language, _EXTRACTION)
