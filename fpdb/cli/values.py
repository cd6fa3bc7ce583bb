"""Convert what the command line holds, without the package that typer loads to do it."""

import functools
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Any, Literal, cast, get_args, get_origin

import typer


def convert(command: Any, context: typer.Context, function: Callable[..., None]) -> None:
    """Let a command convert its values by the types of its function.

    Typer makes an adapter of pydantic for each parameter, even for one that isn't given, which
    takes as long as numpy to import. It still converts what doesn't fit, and says why.
    """
    kinds = inspect.signature(function).parameters
    for parameter in command.get_params(context):
        # Typer adds some switches of its own.
        parse = _parser(kinds[parameter.name].annotation) if parameter.name in kinds else bool
        parameter.process_value = _process(parameter, parse)
    command.make_parser = functools.partial(_parser_of_single_values, command.make_parser)


def _parser_of_single_values(make_parser: Callable[[Any], Any], context: Any) -> Any:
    """Return a parser of options, for which two values are an error where one counts."""
    parser = make_parser(context)
    parse = parser.parse_args

    def parse_args(args: list[str]) -> Any:
        values, arguments, order = parse(args)
        for option in () if context.resilient_parsing else order:
            count = order.count(option)
            if count > 1 and not (option.multiple or option.is_flag):
                raise typer.BadParameter(f"found {count} values, expected one", context, option)
        return values, arguments, order

    parser.parse_args = parse_args
    return parser


def _process(parameter: Any, parse: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    by_typer = parameter.process_value
    has_many = parameter.multiple or parameter.nargs == -1

    def process_value(context: Any, value: Any) -> Any:
        if parameter.required and not value:
            return by_typer(context, value)
        try:
            if value is not None:
                value = [parse(text) for text in value] if has_many else parse(value)
        except ValueError:
            return by_typer(context, value)
        return parameter.callback(context, parameter, value) if parameter.callback else value

    return process_value


def _parser(annotation: Any) -> Callable[[Any], Any]:
    """Return what converts a value of an annotated type, and raises ValueError if it can't."""
    kind, info = get_args(annotation)
    if info.parser:
        return cast("Callable[[Any], Any]", info.parser)
    if NoneType in get_args(kind):
        kind, _ = get_args(kind)
    if get_origin(kind) is list:
        (kind,) = get_args(kind)
    choices = (False, True) if kind is bool else get_args(kind)
    if kind is bool or get_origin(kind) is Literal:
        return lambda value: choices[choices.index(value)]
    if kind in (str, Path):
        return cast("Callable[[Any], Any]", kind)
    least = -math.inf if info.min is None else info.min
    most = math.inf if info.max is None else info.max

    def number(text: Any) -> Any:
        value = kind(text)
        if not least <= value <= most:
            raise ValueError
        return value

    return number
