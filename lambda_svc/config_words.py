"""What is wrong with a config file, in words: reading YAML strictly, and saying what a field expects.

The validator's own texts speak of inputs and types; a reader of YAML wants the field, what came and what fits there.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

__all__ = ["field_problems", "read_yaml"]

_SHOWN_MAX = 80  # characters of a value that came
_EXPECTED = {
    "bool_parsing": "true or false", "bool_type": "true or false",
    "int_parsing": "a whole number", "int_type": "a whole number", "int_from_float": "a whole number",
    "int_parsing_size": "a whole number",
    "float_parsing": "a number", "float_type": "a number", "finite_number": "a number",
    "string_type": "text", "path_type": "a path",
    "dict_type": "a mapping", "model_type": "a mapping", "model_attributes_type": "a mapping", "tuple_type": "a list",
    "greater_than_equal": "at least {ge}", "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}", "less_than": "less than {lt}", "multiple_of": "a multiple of {multiple_of}",
    "string_too_short": "text that is not empty", "string_too_long": "at most {max_length} characters",
    "string_pattern_mismatch": "a name: letters, digits and '_', no digit first",
    "literal_error": "{expected}",
}


def read_yaml(text: str) -> tuple[Any, list[str]]:
    """The document, and a problem for every key that stands twice in its mapping: YAML would keep the last one only.

    Raises yaml.YAMLError for what is not YAML, with nesting deeper than the parser can follow among it.
    """
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        problems = [] if node is None else list(_repeated(node, (), set()))
        return (None if node is None else loader.construct_document(node)), problems
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None
    finally:
        loader.dispose()


def _repeated(node: yaml.Node, where: tuple[str, ...], seen: set[int]) -> Iterator[str]:
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, part in enumerate(node.value):
            yield from _repeated(part, (*where, str(index)), seen)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            if name in lines:
                yield f"{'.'.join((*where, name))}: stands in line {lines[name]} and again in line {line}; keep one"
            if isinstance(key, yaml.ScalarNode):
                lines.setdefault(name, line)
            yield from _repeated(value, (*where, name), seen)


def field_problems(error: ValidationError, root: type[BaseModel]) -> list[str]:
    """One `path.to.field: what is wrong` per field that `root` refused."""
    return list(dict.fromkeys(_describe(problem, root) for problem in error.errors()))


def _describe(problem: dict[str, Any], root: type[BaseModel]) -> str:
    loc, kind = problem["loc"], problem["type"]
    if loc[-1:] == ("[key]",):
        loc = loc[:-1]
    model, union = _model_at(loc, root)
    where = ".".join(map(str, loc[:-1] if union else loc)) or "(file)"
    if kind == "missing":
        return f"{where}: missing, but required"
    if kind == "extra_forbidden":
        fields = list(model.model_fields)
        near = get_close_matches(str(loc[-1]), fields, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ";"
        return f"{where}: unknown field {str(loc[-1])!r}{hint} fields: {', '.join(fields)}"
    if kind == "too_short":
        return f"{where}: name at least one {where.rpartition('.')[2].removesuffix('s')}"
    shown = repr(problem["input"])
    shown = shown if len(shown) <= _SHOWN_MAX else f"{shown[:_SHOWN_MAX]}..."
    return f"{where}: expected {union or _expected(problem)}, got {shown}"


def _expected(problem: dict[str, Any]) -> str:
    context = problem.get("ctx", {})
    if problem["type"] == "value_error":
        return str(context["error"])
    text = _EXPECTED.get(problem["type"])
    return problem["msg"].removeprefix("Input should be ") if text is None else text.format(**context)


def _model_at(loc: tuple[int | str, ...], root: type[BaseModel]) -> tuple[type[BaseModel], str]:
    """The model whose field `loc` ends in; and for one of several types, what its field says it takes."""
    model: type[BaseModel] = root
    for index, part in enumerate(loc):
        field = model.model_fields.get(str(part))
        if field is None:
            continue  # an unknown field, or a key of a mapping
        takes = str((field.json_schema_extra or {}).get("takes", ""))
        if takes:
            return model, takes if index < len(loc) - 1 else ""
        inner = next((part for part in _types(field.annotation) if issubclass(part, BaseModel)), None)
        if inner is None:
            return model, ""
        if index < len(loc) - 1:
            model = inner
    return model, ""


def _types(annotation: Any) -> Iterator[type]:
    """Every class that an annotation such as `dict[str, Model]` or `Model | None` names."""
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for part in get_args(annotation):
        yield from _types(part)
