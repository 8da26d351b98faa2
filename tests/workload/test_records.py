"""Every shape of record gives the prompt it stands for, and a bad one says what is wrong with it."""

import pytest

from dspark.workload.records import Message, Record, num_unused_turns, prompt_of


def _record(**fields: object) -> Record:
    return Record(fields=fields, where="file.jsonl:3", default_id="file-3", default_domain="file")


def _user(content: str) -> tuple[Message, ...]:
    return (Message(role="user", content=content),)


CHAT = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello"},
    {"role": "user", "content": "And now?"},
]
CHAT_MESSAGES = tuple(Message(**message) for message in CHAT)


@pytest.mark.parametrize(
    ("fields", "column", "messages"),
    [
        ({"turns": ["one", "two"]}, None, _user("one")),
        ({"prompt": "one"}, None, _user("one")),
        ({"prompt": CHAT}, None, CHAT_MESSAGES),
        ({"messages": CHAT}, None, CHAT_MESSAGES),
        ({"question": "one", "prompt": "other"}, "question", _user("one")),
        ({"question": CHAT}, "question", CHAT_MESSAGES),
        ({"question": ["one", "two"]}, "question", _user("one")),
        ({"prompt": "second choice", "turns": ["first choice"]}, None, _user("first choice")),
        ({"turns": None, "prompt": "one"}, None, _user("one")),
    ],
)
def test_shapes(fields, column, messages):
    assert prompt_of(_record(**fields), column=column).messages == messages


def test_ids_and_domains_are_the_records_own_or_its_place():
    assert (prompt_of(_record(prompt="a")).id, prompt_of(_record(prompt="a")).domain) == ("file-3", "file")
    named = prompt_of(_record(prompt="a", id=0, domain="math"))
    assert (named.id, named.domain) == ("0", "math")


def test_a_system_message_goes_in_front():
    system = Message(role="system", content="Be brief.")
    assert prompt_of(_record(messages=CHAT), system="Be brief.").messages == (system, *CHAT_MESSAGES)
    own = [{"role": "system", "content": "Be long."}, *CHAT]
    with pytest.raises(ValueError, match=r"^file.jsonl:3: has a system message of its own"):
        prompt_of(_record(messages=own), system="Be brief.")


def test_unused_turns_are_counted():
    assert num_unused_turns(_record(turns=["one", "two", "three"])) == 2
    assert num_unused_turns(_record(turns=["one"])) == 0
    assert num_unused_turns(_record(messages=CHAT)) == 0
    assert num_unused_turns(_record(prompt="one")) == 0


@pytest.mark.parametrize(
    ("fields", "column", "message"),
    [
        ({"question": "a", "answer": "b"}, None, r"its fields: question, answer: name .* column=FIELD"),
        ({}, None, r"its fields: none"),
        ({"prompt": "a", "answer": "b"}, "text", r"no field 'text'; its fields: prompt, answer"),
        ({"prompt": 7}, None, r"'prompt' must be a text, .*, got int"),
        ({"text": None}, "text", r"'text' must be a text, .*, got NoneType"),
        ({"turns": []}, None, r"'turns' is an empty list"),
        ({"prompt": " \n"}, None, r"the prompt in 'prompt' is empty"),
        ({"turns": ["", "two"]}, None, r"the prompt in 'turns' is empty"),
        ({"messages": CHAT[:2]}, None, r"must end with a user message, got role 'assistant' last"),
        ({"messages": [*CHAT, "text"]}, None, r"a message must be an object, got str"),
        ({"messages": [{"from": "human", "value": "a"}]}, None, r"got the keys from, value"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, None, r"role and content as texts"),
    ],
)
def test_a_bad_record_is_named_in_one_line(fields, column, message):
    with pytest.raises(ValueError, match=message) as error:
        prompt_of(_record(**fields), column=column)
    assert str(error.value).startswith("file.jsonl:3: ")
    assert "\n" not in str(error.value)
