"""The JSON Schema of a job.yaml, by which editors complete and check one."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from spotctl.files.job.parts import JobFile


def schema() -> dict[str, Any]:
    """The schema, in the dialect of 2020-12."""
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        **JobFile.model_json_schema(schema_generator=_Schema),
        "title": "spotctl job",
    }


class _Schema(GenerateJsonSchema):
    """Pydantic's own, without titles that repeat the key and defaults that are no values."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401, ARG002 - pydantic's own signature
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        return {**super().dict_schema(schema), "additionalProperties": False}
