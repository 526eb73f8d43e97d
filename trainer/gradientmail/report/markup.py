"""HTML and SVG as text in which nothing a user chose can become markup. Pure.

Every child and every attribute is escaped, unless it is Markup already, which only `element` makes.
"""

from __future__ import annotations

from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


VOID = frozenset({"meta", "link", "br"})
Attribute = str | int | float | bool | None


def element(tag: str, /, *children: str, **attributes: Attribute) -> Markup:
    """Return `<tag attributes>children</tag>`; `class_` stands for class, `_` within a name for a hyphen.

    Attributes that are None or False are left out; one that is True has no value.
    """
    head = "".join(_attribute(key, value) for key, value in attributes.items())
    if tag in VOID:
        return Markup(f"<{tag}{head}>")
    return Markup(f"<{tag}{head}>{joined(children)}</{tag}>")


def joined(parts: list[str] | tuple[str, ...]) -> Markup:
    """Return the parts one after another."""
    return Markup("".join(part if isinstance(part, Markup) else escape(part) for part in parts))


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return f' {name}="{escape(text)}"'
