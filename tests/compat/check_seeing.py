#!/usr/bin/env python3
"""Holds compiled models that see against the transformers library, on random checkpoints of random configurations.

    check_seeing.py PLANISH [--configurations 12] [--seed 0] [--targets onnx,ort] [--only TYPE...] [--keep DIR]

Configurations come from seeing_configs.py. A prompt has places of one image or two, at some of its tokens. Its logits, and those of
some tokens after it with the cache, have to be what the saved checkpoint gives in float64, within 1e-4 of the largest value; so do the
tokens of greedy search. The rest is as check_encoders.py does it.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import check_encoders
from cases import Mismatch, difference
from check_encoders import Refused, Row, Tensors, Trial, Unusable, with_plain_experts
from seeing_configs import TYPES, Draw

HEADS = ("ForConditionalGeneration",)
# The id that stands for a place of an image.
IMAGE = 1
NEW_TOKENS = 5
PARTS = ("vision_encoder", "embed_tokens", "decoder_model_merged")
# Types whose images are a list for each row.
IN_ROWS = ("idefics3", "smolvlm")
# The input of the shapes of images of any shape, in the files and in transformers.
GRIDS = ("grid_thw", "image_grid_thw")


def empty_cache(session: onnxruntime.InferenceSession, rows: int) -> Tensors:
    sizes = dict(batch_size=rows, past_sequence_length=0)
    return {
        i.name: np.zeros([sizes.get(size, size) for size in i.shape], np.float32)
        for i in session.get_inputs()
        if i.name.startswith("past")
    }


class Sessions:
    """The three parts of a compiled model."""

    def __init__(self, folder: Path):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        load = lambda name: onnxruntime.InferenceSession(folder / f"{name}.onnx", options, providers=["CPUExecutionProvider"])
        self.vision, self.embed, self.decoder = map(load, PARTS)

    def features(self, pixels: Tensors) -> np.ndarray:
        taken = {i.name for i in self.vision.get_inputs()}
        # Images of any shape have theirs beside them.
        given = {name: t for name, t in pixels.items() if name in taken} | {name: pixels[GRIDS[1]] for name in taken if name in GRIDS}
        return self.vision.run(["image_features"], given)[0]

    def vectors(self, ids: np.ndarray, features: np.ndarray | None) -> np.ndarray:
        vectors = self.embed.run(None, dict(input_ids=ids))[0]
        if features is not None:
            vectors[ids == IMAGE] = features
        return vectors

    def decode(self, vectors: np.ndarray, mask: np.ndarray, cache: Tensors, types: np.ndarray, positions: np.ndarray) -> Tensors:
        count = vectors.shape[1]
        inputs = dict(
            inputs_embeds=vectors, attention_mask=mask, position_ids=positions[..., -count:], token_type_ids=types
        )
        names = [o.name for o in self.decoder.get_outputs()]
        taken = {i.name for i in self.decoder.get_inputs()}
        given = {name: t for name, t in (inputs | cache).items() if name in taken}
        return dict(zip(names, self.decoder.run(names, given)))


class SeeingTrial(Trial):
    """One configuration of a model that sees."""

    types, drawer = TYPES, Draw

    def sessions(self, target: str, row: Row) -> Sessions:
        folder = self.scratch / target
        try:
            self.compile(target, row)
        except onnxruntime.capi.onnxruntime_pybind11_state.NoSuchFile:
            pass  # It has three files of other names.
        return Sessions(folder)

    def loaded(self) -> torch.dtype:
        # These round the factors of embeddings to the element type that they are loaded in.
        return self.dtype if self.type_name in ("gemma3", "paligemma") else super().loaded()

    @property
    def has_grids(self) -> bool:
        return self.type_name.startswith("qwen")

    def pixels(self, images: int) -> Tensors:
        tower = self.config["vision_config"]
        numbers = np.random.default_rng(self.draw.getrandbits(32))
        if self.has_grids:
            side = tower["spatial_merge_size"]
            grid = np.array([[1, side * self.draw.randint(1, 5), side * self.draw.randint(1, 5)] for _ in range(images)], np.int64)
            size = tower["in_channels"] * tower["temporal_patch_size"] * tower["patch_size"] ** 2
            values = numbers.normal(size=[grid.prod(1).sum(), size]).astype(np.float32)
            return dict(pixel_values=values, image_grid_thw=grid)
        size = tower["image_size"]
        pixels = numbers.normal(size=[images, tower.get("num_channels", 3), size, size]).astype(np.float32)
        return dict(pixel_values=pixels[None] if self.type_name in IN_ROWS else pixels)

    def prompt(self, places: list[int]) -> np.ndarray:
        """Tokens with the places of images among them."""
        ids = [i for i in range(self.config["text_config"]["vocab_size"]) if i != IMAGE]
        token = lambda count: [self.draw.choice(ids) for _ in range(count)]
        text = token(self.draw.randint(1, 3))
        for count in places:
            text += [IMAGE] * count + token(self.draw.randint(1, 4))
        return np.array([text], np.int64)

    def types_of(self, ids: np.ndarray) -> np.ndarray:
        """What transformers' processors say of tokens."""
        return np.zeros_like(ids) if self.type_name == "paligemma" else (ids == IMAGE).astype(np.int64)

    def extra(self, ids: np.ndarray) -> dict:
        if self.has_grids:
            return dict(mm_token_type_ids=torch.from_numpy(self.types_of(ids)))
        wants = self.type_name in ("gemma3", "paligemma")
        return dict(token_type_ids=torch.from_numpy(self.types_of(ids))) if wants else {}

    def run(self, row: Row) -> None:
        model_class = self.save()
        cases = []
        try:
            sessions = {target: self.sessions(target, row) for target in self.args.targets.split(",")}
        except Refused:
            pixels = self.pixels(1)
            raise
        first = next(iter(sessions.values()))
        for images in (1, 2):
            pixels = self.pixels(images)
            count = len(first.features(pixels))
            places = [count // images] * images
            if self.has_grids:
                places = (pixels["image_grid_thw"].prod(1) // self.config["vision_config"]["spatial_merge_size"] ** 2).tolist()
            cases.append((self.prompt(places), pixels))
        wanted = self.wanted(model_class, cases, torch.float64)
        try:
            for target, parts in sessions.items():
                for (ids, pixels), expected in zip(cases, wanted):
                    row.worst = max(row.worst, self.hold(target, parts, ids, pixels, expected))
        except Mismatch:
            single = self.wanted(model_class, cases, torch.float32)
            try:
                for (_, found, _), (_, expected, _) in zip(single, wanted):
                    difference("float32", found, expected, None, self.args.tolerance)
            except Mismatch as e:
                raise Unusable(f"transformers itself differs in float32: {e}") from e
            raise

    def wanted(self, model_class: type, cases: list, dtype: torch.dtype) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The tokens of greedy search, prompt included, the logits of all of them but the last, and their positions."""
        found = []
        try:
            model = with_plain_experts(model_class.from_pretrained(self.scratch / "model", dtype=self.loaded()).eval().to(dtype))
            for ids, pixels in cases:
                given = {name: torch.from_numpy(t) for name, t in pixels.items()}
                given = {name: t.to(dtype) if t.is_floating_point() else t for name, t in given.items()}
                with torch.no_grad(), self.computing(dtype):
                    ids = torch.from_numpy(ids)
                    count = ids.shape[1]
                    first = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=True, **given, **self.extra(ids.numpy()))
                    cache = first.get("cache", first.get("past_key_values"))
                    logits = [first.logits[0]]
                    positions, after = torch.arange(count + NEW_TOKENS)[None], self.type_name == "paligemma"
                    if self.has_grids:
                        prompt, after = model.model.get_rope_index(
                            ids, image_grid_thw=given["image_grid_thw"], attention_mask=torch.ones_like(ids), **self.extra(ids.numpy())
                        )
                        new = (torch.arange(count, count + NEW_TOKENS) + after).expand(3, 1, -1)
                        positions = torch.cat([prompt, new], -1)
                    name = "cache" if "cache" in first else "past_key_values"
                    for _ in range(NEW_TOKENS):
                        step = logits[-1][-1].argmax()[None, None]
                        ids = torch.cat([ids, step], 1)
                        place = torch.tensor([[ids.shape[1] - 1]]) + after
                        if self.has_grids:
                            place = place.expand(3, 1, 1)
                        out = model(
                            input_ids=step, attention_mask=torch.ones_like(ids), position_ids=place, use_cache=True, **{name: cache}
                        )
                        logits.append(out.logits[0])
                    found.append((ids.numpy(), torch.cat(logits).numpy().astype(np.float32), positions.numpy()))
        except Exception as e:
            raise Unusable(f"{type(e).__name__}: {e}") from e
        if not all(np.isfinite(logits).all() for _, logits, _ in found):
            raise Unusable("logits are not finite")
        return found

    def hold(self, target: str, parts: Sessions, ids: np.ndarray, pixels: Tensors, expected: tuple) -> float:
        """The largest difference of logits, of a prompt and of the tokens after it."""
        text, want, positions = expected
        features, worst = parts.features(pixels), 0.0
        cache, count = empty_cache(parts.decoder, 1), ids.shape[1]
        for step in range(NEW_TOKENS + 1):
            new = ids if step == 0 else text[:, count + step - 1 : count + step]
            # A token that is generated stands for no place.
            vectors = parts.vectors(new, features if step == 0 else None)
            mask = np.ones([1, count + step], np.int64)
            types = self.types_of(new) if step == 0 else np.zeros_like(new)
            outputs = parts.decode(vectors, mask, cache, types, positions[..., : count + step])
            from_, to = (0, count) if step == 0 else (count + step - 1, count + step)
            what = f"{target}, prompt of {count}, step {step}"
            worst = max(worst, difference(what, outputs["logits"][0], want[from_:to], None, self.args.tolerance))
            if step < NEW_TOKENS and outputs["logits"][0, -1].argmax() != text[0, count + step]:
                best = np.sort(want[to - 1])[-2:]
                if best[1] - best[0] > 1e-3 * np.abs(want).max():
                    raise Mismatch(f"{what}: another token than greedy search of transformers has")
            cache = {
                name.replace("present", "past_key_values", 1): t for name, t in outputs.items() if name.startswith("present")
            }
        return worst


if __name__ == "__main__":
    sys.exit(check_encoders.main(__doc__, SeeingTrial, HEADS))
