"""From `module:callable` and the manifest's arguments to a Task, with a sentence for whatever is wrong."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
import traceback
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError

from gradientmail.training.task import Setting, Task, TaskError

Builder = Callable[..., object]


def build_task(name: str, arguments: Mapping[str, Any], setting: Setting) -> Task:
    """Import the callable, check the arguments and call it. Raises TaskError, or what the task's own code raises."""
    builder = find_builder(name)
    checked = checked_arguments(name, builder, arguments)
    try:
        task = builder(setting, **checked)
    except TypeError as error:
        if str(error).startswith("Task.__init__() "):
            raise TaskError(f"task {name!r} lacks a part: {str(error).removeprefix('Task.__init__() ')}") from None
        raise
    if not isinstance(task, Task):
        raise TaskError(f"task {name!r} returned a {type(task).__name__}, but a gradientmail Task is expected")
    return task


def find_builder(name: str) -> Builder:
    """Return the callable of `module:callable`; modules of the current folder are found as with `python -m`."""
    module_name, _, attribute = name.partition(":")
    module = _imported(name, module_name)
    if not hasattr(module, attribute):
        choices = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise TaskError(f"task {name!r}: module {module_name!r} has no {attribute!r}{_nearest(attribute, choices)}")
    builder = getattr(module, attribute)
    if not callable(builder):
        raise TaskError(
            f"task {name!r} names something of type {type(builder).__name__}, which cannot be called: "
            "name a function that returns a Task"
        )
    return typing.cast(Builder, builder)


def checked_arguments(name: str, builder: Builder, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, converted to the callable's annotations. Raises TaskError naming what does not fit."""
    parameters = list(inspect.signature(builder).parameters.values())
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise TaskError(
            f"task {name!r} takes no Setting: its first parameter must be positional, as in task(setting, …)"
        )
    own = {parameter.name: parameter for parameter in parameters[1:]}
    _check_names(name, own, arguments)
    hints = _hints(builder)
    return {key: _converted(name, key, value, hints.get(key, Any)) for key, value in arguments.items()}


def _imported(name: str, module_name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise TaskError(
                f"task {name!r} cannot be imported: there is no module {error.name!r} in {here} or among the installed "
                "packages; start in the folder that holds it, or install it"
            ) from None
        raise TaskError(_failed_import(name, error)) from error
    except Exception as error:
        raise TaskError(_failed_import(name, error)) from error


def _failed_import(name: str, error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames and not isinstance(error, SyntaxError) else ""
    return f"task {name!r} cannot be imported: {type(error).__name__}: {error}{place}"


def _check_names(name: str, own: Mapping[str, inspect.Parameter], arguments: Mapping[str, Any]) -> None:
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in own.values())
    named = [key for key, parameter in own.items() if parameter.kind in _BY_NAME]
    for key in arguments:
        if key not in named and not takes_any:
            raise TaskError(f"task {name!r} has no argument {key!r}{_nearest(key, named)}")
    missing = [key for key in named if own[key].default is inspect.Parameter.empty and key not in arguments]
    if missing:
        raise TaskError(f"task {name!r} needs {_listed(missing)}: set it under spec.trainer.args")


_BY_NAME = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _hints(builder: Builder) -> dict[str, Any]:
    try:
        return typing.get_type_hints(builder, include_extras=True)
    except (NameError, TypeError):  # annotations that exist for type checkers only
        return {}


def _converted(name: str, key: str, value: object, hint: Any) -> Any:
    try:
        return _adapter(hint).validate_python(value)
    except ValidationError as error:
        problem = error.errors()[0]
        path = "".join(f"[{part!r}]" for part in problem["loc"])
        wanted = problem["msg"][:1].lower() + problem["msg"][1:]
        raise TaskError(f"task {name!r}: argument {key}{path} is {problem['input']!r}, but {wanted}") from None


def _adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
    except (PydanticUserError, PydanticUndefinedAnnotation):  # a model or dataclass brings its own configuration
        return TypeAdapter(hint)


def _nearest(wanted: str, choices: Iterable[str]) -> str:
    known = sorted(choices)
    close = difflib.get_close_matches(wanted, known, n=1)
    if close:
        return f": did you mean {close[0]!r}?"
    return f": it has {_listed(known)}" if known else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
