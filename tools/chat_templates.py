"""Writes fixtures/chat/expected.json: what the transformers library makes of messages with fixtures/chat/templates.

    python tools/chat_templates.py fixtures/chat

Needs transformers 5.23.0, jinja2 3.1.6 and tokenizers, no PyTorch. The templates were written for this project; each
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


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def texts(folder, template):
    with tempfile.TemporaryDirectory() as scratch:
        words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<unk>": 0, "<s>": 1}, unk_token="<unk>"))
        words.save(f"{scratch}/tokenizer.json")
        shutil.copy(folder / "tokenizer_config.json", scratch)
        shutil.copy(template, f"{scratch}/chat_template.jinja")
        tokenizer = transformers.AutoTokenizer.from_pretrained(scratch)
    for message in MESSAGES:
        conversation = [{"role": "user", "content": message}]
        try:
            text = tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
        except Exception as error:
            text = {"error": str(error).splitlines()[0]}
        yield text


def main():
    folder = Path(sys.argv[1])
    chat_template_utils.datetime = Clock
    expected = {template.stem: list(texts(folder, template)) for template in sorted((folder / "templates").iterdir())}
    document = {"now": NOW.isoformat(), "messages": MESSAGES, "texts": expected}
    (folder / "expected.json").write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


main()
