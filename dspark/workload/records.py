"""From a record of a prompt file, in whichever shape it comes, to a prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PROMPT_FIELDS = ("turns", "prompt", "messages")
"""Fields that hold the prompt when no column is named, in order of preference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a source, not looked into yet."""

    fields: Mapping[str, object]
    where: str  # for error messages: file and line, or data set and row
    default_id: str
    default_domain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A chat that ends with the user's message, which the target answers."""

    id: str
    domain: str
    messages: tuple[Message, ...]

    @property
    def num_chars(self) -> int:
        """Characters of all messages."""
        return sum(len(message.content) for message in self.messages)


def prompt_of(record: Record, *, column: str | None = None, system: str | None = None) -> Prompt:
    """The prompt that a record holds.

    The field may be a text (the user's message), a list of texts (the user's turns, of which the
    first is the prompt: later ones would need the answers to earlier ones), or a list of chat
    messages with ``role`` and ``content`` that ends with the user's. The record's own ``id`` and
    ``domain`` are kept.

    Args:
        record: the record.
        column: the field that holds the prompt; None takes the first of ``PROMPT_FIELDS``.
        system: a system message to put in front.

    Raises:
        ValueError: no such field, a field of another shape, an empty prompt, or two system messages.
    """
    name = _prompt_field(record, column)
    messages = _messages(record.fields[name], f"{record.where}: {name!r}")
    if not messages[-1].content.strip():
        raise ValueError(f"{record.where}: the prompt in {name!r} is empty: fill it or remove the record")
    if system is not None:
        if messages[0].role == "system":
            raise ValueError(f"{record.where}: has a system message of its own: leave system unset")
        messages = (Message(role="system", content=system), *messages)
    own_id, own_domain = record.fields.get("id"), record.fields.get("domain")
    return Prompt(
        id=str(own_id) if isinstance(own_id, str | int) and own_id != "" else record.default_id,
        domain=own_domain if isinstance(own_domain, str) and own_domain else record.default_domain,
        messages=messages,
    )


def num_unused_turns(record: Record, column: str | None = None) -> int:
    """Later turns of a record with a list of texts: ``prompt_of`` takes the first one only."""
    value = record.fields[_prompt_field(record, column)]
    return len(value) - 1 if isinstance(value, list) and isinstance(value[0], str) else 0


def _prompt_field(record: Record, column: str | None) -> str:
    """The name of the field that holds the prompt."""
    seen = ", ".join(record.fields) or "none"
    if column is not None:
        if column not in record.fields:
            raise ValueError(f"{record.where}: no field {column!r}; its fields: {seen}")
        return column
    for name in PROMPT_FIELDS:
        # a data set has the same fields in every record, and null where a record lacks one
        if record.fields.get(name) is not None:
            return name
    raise ValueError(
        f"{record.where}: none of the fields {', '.join(PROMPT_FIELDS)}; its fields: {seen}: "
        "name the one that holds the prompt with column=FIELD"
    )


def _messages(value: object, where: str) -> tuple[Message, ...]:
    """The chat that a field's value stands for."""
    if isinstance(value, str):
        return (Message(role="user", content=value),)
    if not isinstance(value, list):
        raise ValueError(
            f"{where} must be a text, a list of texts or a list of chat messages, got {type(value).__name__}"
        )
    if not value:
        raise ValueError(f"{where} is an empty list: fill it or remove the record")
    if isinstance(value[0], str):
        return (Message(role="user", content=value[0]),)
    messages = tuple(_message(item, where) for item in value)
    if messages[-1].role != "user":
        raise ValueError(f"{where} must end with a user message, got role {messages[-1].role!r} last")
    return messages


def _message(item: object, where: str) -> Message:
    """One chat message."""
    if isinstance(item, dict):
        role, content = item.get("role"), item.get("content")
        if isinstance(role, str) and isinstance(content, str):
            return Message(role=role, content=content)
        raise ValueError(
            f"{where}: a message needs role and content as texts, got the keys {', '.join(item)}"
        )
    raise ValueError(f"{where}: a message must be an object, got {type(item).__name__}")
