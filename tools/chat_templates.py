"""Writes fixtures/chat/expected.json: what the transformers library makes of messages with fixtures/chat/templates.

    python tools/chat_templates.py fixtures/chat

Needs transformers 5.24.0, jinja2 3.1.6 and tokenizers, no PyTorch. The templates were written for this project; each
uses what published templates of the family that it is named after use. The clock stands still. What a template raises
is stored as its error, the first of the message's lines.
"""

import datetime
import json
import shutil
import sys
import tempfile
from pathlib import Path

import tokenizers
import transformers
from transformers.utils import chat_template_utils

NOW = datetime.datetime(2026, 2, 3, 4, 5, 6)
MESSAGES = [
    "Hello",
    "  1 < 2 & \"so\" it's \\ <b>\n\n\ttwo\n",
    "",
    "<think>\nfirst\n</think>\n\nthen é 漢字 🙂",
    "<response>{{ 1 }} {% generation %} %s {}</response>",
]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "What's the \"weather\" in a city?",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "é, <b>"},
                    "days": {"type": "integer", "enum": [1, 7], "default": 1.5},
                },
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}},
]
CALLED = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "And in Rome?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "type": "function",
                "id": "call00000",
                "function": {"name": "weather", "arguments": {"city": "Rome", "days": 7, "is_real": True}},
            }
        ],
    },
    {"role": "tool", "content": "{\"sky\": \"blue\"}", "tool_call_id": "call00000"},
]


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def tokenizer_of(folder, template):
    with tempfile.TemporaryDirectory() as scratch:
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0, "<s>": 1}, unk_token="<unk>"))
        words.save(f"{scratch}/tokenizer.json")
        shutil.copy(folder / "tokenizer_config.json", scratch)
        shutil.copy(template, f"{scratch}/chat_template.jinja")
        return transformers.AutoTokenizer.from_pretrained(scratch)


def text_of(tokenizer, conversation, tools=None):
    try:
        return tokenizer.apply_chat_template(conversation, tools=tools, tokenize=False, add_generation_prompt=True)
    except Exception as error:
        return {"error": str(error).splitlines()[0]}


def texts(folder, template):
    tokenizer = tokenizer_of(folder, template)
    for message in MESSAGES:
        yield text_of(tokenizer, [{"role": "user", "content": message}])


def main():
    folder = Path(sys.argv[1])
    chat_template_utils.datetime = Clock
    expected = {template.stem: list(texts(folder, template)) for template in sorted((folder / "templates").iterdir())}
    with_tools = {
        template.stem: [text_of(tokenizer_of(folder, template), messages, TOOLS) for messages in [CALLED[1:2], CALLED]]
        for template in sorted((folder / "templates").iterdir())
        if "tools" in template.read_text()
    }
    tools = {"tools": TOOLS, "messages": CALLED, "texts": with_tools}
    document = {"now": NOW.isoformat(), "messages": MESSAGES, "texts": expected, "with_tools": tools}
    (folder / "expected.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


main()
