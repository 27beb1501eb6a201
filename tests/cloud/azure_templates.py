"""Deployment templates: checked as Resource Manager checks them, and carried out in the order of
their dependencies.

Only literal templates are understood: a string in brackets is an expression, and refused, unless it
is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tests.cloud.azure_models import check_body, check_version
from tests.cloud.azure_state import Body, Refused

_SCHEMA = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
_KEYS = {"$schema", "contentVersion", "parameters", "variables", "resources", "outputs"}
_OF_TEMPLATE = {"type", "apiVersion", "name", "dependsOn", "comments"}


def resources_of(body: Body) -> list[Body]:
    """The resources of a deployment, in an order in which they can be made. Refuses what does not
    fit.
    """
    properties = body["properties"]
    if properties.get("mode") != "Incremental":
        raise Refused(
            "InvalidDeploymentMode",
            "a complete deployment would delete what is not in the template",
        )
    template = properties.get("template") or {}
    if (
        template.get("$schema") != _SCHEMA
        or "contentVersion" not in template
        or not set(template) <= _KEYS
    ):
        raise Refused(
            "InvalidTemplate",
            f"the template's keys are {sorted(template)}, its schema {template.get('$schema')}",
        )
    resources: list[Body] = [_literal(one) for one in template["resources"]]
    for one in resources:
        if not {"type", "apiVersion", "name"} <= set(one):
            raise Refused(
                "InvalidTemplate", f"a resource lacks its type, apiVersion or name: {sorted(one)}"
            )
        check_version(one["type"], one["apiVersion"], body=True)
        check_body(one["type"], wanted(one))
    return list(_in_order(resources))


def wanted(resource: Body) -> Body:
    """The body of a resource, without what only the template needs."""
    return {name: value for name, value in resource.items() if name not in _OF_TEMPLATE}


def _in_order(resources: list[Body]) -> Iterator[Body]:
    waiting = {f"{one['type']}/{one['name']}".lower(): one for one in resources}
    if len(waiting) < len(resources):
        raise Refused("InvalidTemplate", "a resource is defined more than once")
    done: set[str] = set()
    while waiting:
        needs = {
            key: [_key(name) for name in one.get("dependsOn", ())] for key, one in waiting.items()
        }
        unknown = [
            name for names in needs.values() for name in names if name not in {*waiting, *done}
        ]
        ready = [key for key, names in needs.items() if done.issuperset(names)]
        if unknown or not ready:
            raise Refused(
                "InvalidTemplate", f"dependsOn {unknown or needs} is not defined in the template"
            )
        for key in ready:
            yield waiting.pop(key)
        done.update(ready)


def _key(name: str) -> str:
    return name.rpartition("/providers/")[2].lower()


def _literal(value: Any) -> Any:  # noqa: ANN401  # JSON is any value
    if isinstance(value, Mapping):
        return {name: _literal(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
        if not value.startswith("[["):
            raise Refused("InvalidTemplate", f"Unable to parse language expression '{value[:60]}'")
        return value[1:]
    return value
