#!/usr/bin/env python3
"""Holds compiled decoders against the transformers library, on random checkpoints of random configurations.

    check_decoders.py PLANISH [--configurations 12] [--seed 0] [--targets onnx,ort] [--only TYPE...] [--keep DIR]

Configurations come from decoder_configs.py, mixture_configs.py, state_configs.py and multimodal_configs.py. A model that
generates text runs on texts of several lengths, padded on the left, and then on one more token of each with the cache that it gave. What comes out has to be what the saved checkpoint
gives in float64 for each text alone, without padding and without a cache: within 1e-4 of the largest value. Heads that
classify are checked as check_encoders.py does.
"""

import contextlib
import re
import sys

import numpy as np
import onnxruntime
import torch

import check_encoders
from cases import Mismatch, difference
from check_encoders import Refused, Row, Tensors, Trial, Unusable, with_plain_experts
from decoder_configs import TYPES, Draw
from mixture_configs import TYPES as MIXTURES
from multimodal_configs import TYPES as MULTIMODAL
from state_configs import STATES

GENERATES = "ForCausalLM"
HEADS = (GENERATES, "Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
# What the names of classes with heads begin with, where it is not that of the configuration.
CLASSES = {"exaone": "Llama", "gemma3n_text": "Gemma3n", "gemma4_text": "Gemma4", "qwen3_5_moe_text": "Qwen3_5Moe", "qwen3_5_text": "Qwen3_5", "internlm3": "Llama", "iquestcoder": "Llama", "llama4_text": "Llama4"}
# The names of classes without.
MODELS = {"exaone": "LlamaModel", "internlm3": "LlamaModel", "llama4_text": "Llama4TextModel", "gemma3n_text": "Gemma3nTextModel"}
NEW_TOKENS = 2
# The id that stands for an image.
IMAGE = 1


def past(present: str) -> str:
    """The input that an output is given to."""
    return re.sub("^present(?=[.])", "past_key_values", present).replace("present_", "past_")


class DecoderTrial(Trial):
    """One configuration of a decoder with a head."""

    types, drawer = TYPES | MIXTURES | STATES | MULTIMODAL, Draw

    def loaded(self) -> torch.dtype:
        # These round the factors of embeddings to the element type that they are loaded in: by default that of the checkpoint.
        return self.dtype if self.type_name in ("gemma3", "gemma3n_text", "gemma4", "gemma4_text", "vaultgemma") else super().loaded()

    @contextlib.contextmanager
    def computing(self, dtype: torch.dtype):
        # XGLM makes the least number of an element type in the default one.
        if self.type_name == "xglm":
            torch.set_default_dtype(dtype)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)

    @property
    def text(self) -> dict:
        """The configuration of the text model."""
        return self.config.get("text_config", self.config)

    @classmethod
    def class_name(cls, type_name: str, head: str) -> str:
        if type_name in MULTIMODAL and head == GENERATES:
            return super().class_name(type_name, "ForConditionalGeneration")
        if head == "Model":
            return MODELS.get(type_name) or super().class_name(type_name, head)
        prefix = CLASSES.get(type_name)
        return prefix + head if prefix else super().class_name(type_name, head)

    def settings(self) -> list[str]:
        # The whole of some is compiled unless the text model is asked for.
        return ["--task", "text-generation"] if self.type_name in MULTIMODAL and self.head == GENERATES else []

    def pads_left(self) -> bool:
        # In float64, that makes NaN in the first ones. What the biases of projections give for padding enters the states of
        # transformers' models.
        return self.type_name not in ("bloom", "mpt", "vaultgemma", "lfm2_moe", *STATES)

    def longest(self) -> int:
        keys = ("max_position_embeddings", "n_positions", "max_seq_len")
        return next((self.text[key] for key in keys if key in self.text), 30)

    def run(self, row: Row) -> None:
        if self.head != GENERATES:
            return super().run(row)
        model_class = self.save()
        texts = [[self.tokens(n) for n in lengths] for lengths in ([4], [3, 1, 6], [self.longest() - NEW_TOKENS, 5])]
        try:
            sessions = {target: self.compile(target, row) for target in self.args.targets.split(",")}
        except Refused:
            self.alone(model_class, texts, torch.float64)
            raise
        wanted = self.alone(model_class, texts, torch.float64)
        try:
            for target, session in sessions.items():
                for batch, expected in zip(texts, wanted):
                    row.worst = max(row.worst, self.generate(target, session, batch, expected))
        except Mismatch:
            single = self.alone(model_class, texts, torch.float32)
            for found, expected in zip(sum(single, []), sum(wanted, [])):
                try:
                    difference("float32", found, expected, None, self.args.tolerance)
                except Mismatch as e:
                    raise Unusable(f"transformers itself differs in float32: {e}") from e
            raise

    def tokens(self, count: int) -> list[int]:
        """A text, with the tokens that come after it, none of which stands for an image."""
        ids = [i for i in range(self.text["vocab_size"]) if self.text is self.config or i != IMAGE]
        return [self.draw.choice(ids) for _ in range(count + NEW_TOKENS)]

    def alone(self, model_class: type, texts: list[list[list[int]]], dtype: torch.dtype) -> list[list[np.ndarray]]:
        """The logits of each text, computed alone."""
        try:
            model = model_class.from_pretrained(self.scratch / "model", dtype=self.loaded()).eval().to(dtype)
            with torch.no_grad(), self.computing(dtype):
                with_plain_experts(model)
                # The whole fails without an image.
                model = model.language_model if self.type_name == "llama4" else model
                found = [[model(torch.tensor([ids])).logits[0].numpy() for ids in batch] for batch in texts]
        except Exception as e:
            raise Unusable(f"{type(e).__name__}: {e}") from e
        found = [[logits.astype(np.float32) for logits in batch] for batch in found]
        if not all(np.isfinite(logits).all() for batch in found for logits in batch):
            raise Unusable("logits are not finite")
        return found

    def generate(
        self, target: str, session: onnxruntime.InferenceSession, texts: list[list[int]], expected: list[np.ndarray]
    ) -> float:
        """The largest difference of logits, of texts and of the tokens after them."""
        given = [len(ids) - NEW_TOKENS for ids in texts]
        width = max(given)
        ids = np.zeros((len(texts), width), np.int64)
        mask = np.zeros((len(texts), width), np.int64)
        for row, (text, count) in enumerate(zip(texts, given)):
            ids[row, width - count :] = text[:count]
            mask[row, width - count :] = 1
        # Symbols of batches, and of tokens so far, of which there are none.
        sizes = dict(batch_size=len(texts), past_sequence_length=0)
        cache = {
            i.name: np.zeros([sizes.get(size, size) for size in i.shape], np.float32)
            for i in session.get_inputs()
            if i.name.startswith("past")
        }
        worst = 0.0
        for step in range(NEW_TOKENS + 1):
            outputs = self.step(session, ids, mask, cache)
            for row, count in enumerate(given):
                tokens = count if step == 0 else 1
                want = expected[row][count + step - tokens : count + step]
                what = f"{target}, row {row} of {given}, step {step}"
                worst = max(worst, difference(what, outputs["logits"][row, -tokens:], want, None, self.args.tolerance))
            if step < NEW_TOKENS:
                ids = np.array([[text[count + step]] for text, count in zip(texts, given)], np.int64)
                mask = np.concatenate([mask, np.ones_like(ids)], 1)
                presents = {name: t for name, t in outputs.items() if name.startswith("present")}
                cache = {past(name): t for name, t in presents.items()}
        return worst

    def step(self, session: onnxruntime.InferenceSession, ids: np.ndarray, mask: np.ndarray, cache: Tensors) -> Tensors:
        """One run of a model."""
        positions = np.maximum(mask.cumsum(-1) - 1, 0)[:, -ids.shape[1] :]
        inputs = dict(input_ids=ids, attention_mask=mask, position_ids=positions) | cache
        taken = {i.name for i in session.get_inputs()}
        names = [o.name for o in session.get_outputs()]
        return dict(zip(names, session.run(names, {name: t for name, t in inputs.items() if name in taken})))

    def kept(self, name: str, mask: np.ndarray) -> np.ndarray:
        """A text is classified at its last token, wherever padding is."""
        return np.ones(len(mask), bool) if self.head == "ForSequenceClassification" else mask


if __name__ == "__main__":
    sys.exit(check_encoders.main(__doc__, DecoderTrial, HEADS))
