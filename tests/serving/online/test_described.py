"""The OpenAPI description: any request that it allows, and any that it does not, gets an answer that it describes."""

import copy

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from fdml.serving.online.openapi import description, page
from tests.serving.online.served import OpenEndpoint
from tests.serving.published import VERSION

CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def served():
    with OpenEndpoint() as found:
        yield found


def with_known_names():
    """The description with names that there are, so that requests come far."""
    content = copy.deepcopy(description())
    for path in content["paths"].values():
        for parameter in path.get("parameters", ()):
            parameter["schema"] = {"enum": ["first"] if parameter["name"] == "name" else [VERSION, VERSION[:6]]}
    tensor = content["components"]["schemas"]["Request"]["properties"]["inputs"]["items"]
    tensor["properties"] |= {"name": {"enum": ["user", "id"]}, "datatype": {"enum": ["BYTES", "INT64"]}}
    tensor["properties"]["data"] = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    tensor["required"] = ["name", "datatype", "shape", "data"]
    return content


@pytest.mark.slow
@pytest.mark.parametrize("content", [description(), with_known_names()], ids=["any", "known names"])
@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_schemathesis_finds_no_server_error_and_nothing_that_is_not_described(content, mode, served):
    schema = schemathesis.openapi.from_dict(content)
    operations = [each.ok() for each in schema.get_all_operations()]
    assert len(operations) == 10
    for operation in operations:
        check_operation(operation, mode, served.url)
    assert served.errors == []


def check_operation(operation, mode, url):
    is_fixed = not operation.path_parameters and operation.method == "get"
    if is_fixed and mode is schemathesis.GenerationMode.NEGATIVE:
        return  # there is nothing in it that could be wrong

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    def check(case):
        case.call_and_validate(base_url=url, checks=CHECKS, timeout=20)

    check()


def test_the_page_lists_all_paths_and_statuses():
    for path, operations in description()["paths"].items():
        assert path in page()
        for operation in operations.values():
            if "responses" in operation:
                assert all(f"<td>{status}</td>" in page() for status in operation["responses"])
