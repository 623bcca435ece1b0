"""Reads texts for a model that takes ids of tokens, in the python backend of Triton Inference Server. It needs the package tokenizers in the
server's Python (pip install tokenizers). config.pbtxt says in `parameters` how texts are cut and filled up, and what each output is: ids,
mask or types."""

import json
from pathlib import Path

import numpy as np
import triton_python_backend_utils as pb_utils
from tokenizers import Tokenizer

# What the tokenizer gives of a text, by the words of config.pbtxt.
GIVEN = {"ids": "ids", "mask": "attention_mask", "types": "type_ids"}


class TritonPythonModel:
    def initialize(self, args):
        config = json.loads(args["model_config"])
        settings = {key: value["string_value"] for key, value in config["parameters"].items()}
        self.outputs = {output["name"]: GIVEN[settings[output["name"]]] for output in config["output"]}
        self.tokenizer = Tokenizer.from_file(str(Path(__file__).parent / "tokenizer.json"))
        side = settings["truncation_side"]
        self.tokenizer.enable_truncation(int(settings["max_length"]), direction=side)
        self.tokenizer.enable_padding(pad_id=int(settings["pad_token_id"]))
        self.read = str.lower if settings["lower_case"] == "true" else str

    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        texts = pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy()
        rows = self.tokenizer.encode_batch([self.read(text.decode("utf-8")) for text in texts.reshape(-1)])
        tensor = lambda name, given: pb_utils.Tensor(name, np.array([getattr(row, given) for row in rows], np.int64))
        return pb_utils.InferenceResponse([tensor(*output) for output in self.outputs.items()])
