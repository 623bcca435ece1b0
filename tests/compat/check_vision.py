#!/usr/bin/env python3
"""Holds compiled models of images against the transformers library, on random checkpoints of random configurations.

    check_vision.py PLANISH [--configurations 12] [--seed 0] [--targets onnx,ort] [--only TYPE...] [--keep DIR]

Configurations come from vision_configs.py. A model runs on batches of one and of three images of its size. What comes out
has to be what the saved checkpoint gives in float64, within 1e-4 of the largest value. The rest is as check_encoders.py
does it.
"""

import sys

import numpy as np
import torch

import check_encoders
from cases import Mismatch, difference
from check_encoders import Refused, Row, Tensors, Trial, Unusable
from vision_configs import TYPES, Draw

HEADS = (
    "Model", "ModelWithProjection", "ForImageClassification", "ForImageClassificationWithTeacher", "ForObjectDetection", "ForSegmentation",
    "ForDepthEstimation", "ForSemanticSegmentation", "ForPoseEstimation",
)  # fmt: skip
# Types that take images of any size.
OF_ANY_SIZE = (
    "convnext", "convnextv2", "d_fine", "detr", "hgnet_v2", "resnet", "rt_detr", "rt_detr_v2", "segformer", "table-transformer",
    "yolos",
)  # fmt: skip
# Detectors that take images whose height and width are multiples of 32.
RT_DETR = ("d_fine", "rt_detr", "rt_detr_v2")
# Outputs of transformers that graphs leave out, by the endings of classes.
INNER = {
    "Model": {"encoder_last_hidden_state", "intermediate_hidden_states"},
    "ForObjectDetection": {
        "last_hidden_state", "encoder_last_hidden_state", "intermediate_hidden_states", "intermediate_logits",
        "intermediate_reference_points", "init_reference_points", "enc_topk_logits", "enc_topk_bboxes", "enc_outputs_class",
        "enc_outputs_coord_logits", "initial_reference_points", "intermediate_predicted_corners",
    },
    "ForSegmentation": {"last_hidden_state", "encoder_last_hidden_state"},
}
# Types that take images of other sizes than `image_size`; transformers resamples the positions of some when it is asked to.
ASKED = ("deit", "swin", "vit", "vit_msn")
RESIZABLE = (
    *ASKED, "beit", "data2vec-vision", "dinov2", "dinov2_with_registers", "dinov3_vit", "mobilevit", "swinv2",
)  # fmt: skip


def pair(size: int | list[int]) -> list[int]:
    """Height and width."""
    return size if isinstance(size, list) else [size, size]


class VisionTrial(Trial):
    """One configuration of a model of images with a head."""

    types, drawer = TYPES, Draw
    # Height and width, where these are not those of the configuration.
    resized: list[int] | None = None

    @classmethod
    def class_name(cls, type_name: str, head: str) -> str:
        # Neither planish nor Optimum has a task for what these give without a head.
        is_bare = type_name in RT_DETR and head == "Model"
        return "" if is_bare else super().class_name(type_name, head)

    def batches(self) -> list[Tensors]:
        """Inputs of the model."""
        return [self.images(rows) | self.texts(number) for number, rows in enumerate((1, 3))]

    def images(self, rows: int) -> Tensors:
        """Images, of a model that has a tower of these or is a model of these."""
        config = self.config.get("vision_config", self.config)
        if self.type_name not in OF_ANY_SIZE:
            config = self.config.get("backbone_config", config)
        if "num_patches" in config:
            return self.patches(rows, config)
        if "image_size" not in config and self.type_name not in OF_ANY_SIZE:
            return {}
        numbers = np.random.default_rng(self.draw.getrandbits(32))
        pixels = numbers.normal(size=[rows, config["num_channels"], *self.sides(config)])
        return dict(pixel_values=pixels.astype(np.float32))

    def patches(self, rows: int, config: dict) -> Tensors:
        """Images of some shapes as patches, filled up to those of the largest."""
        numbers = np.random.default_rng(self.draw.getrandbits(32))
        grid = numbers.integers(1, 7, [rows, 2])
        count = grid.prod(1)
        shape = [rows, max(count), config["num_channels"] * config["patch_size"] ** 2]
        return dict(
            pixel_values=numbers.normal(size=shape).astype(np.float32),
            pixel_attention_mask=(np.arange(max(count)) < count[:, None]).astype(np.int64),
            spatial_shapes=grid,
        )  # fmt: skip

    def sides(self, config: dict) -> list[int]:
        """Height and width of the images of a batch."""
        if self.type_name in RT_DETR:
            return [32 * self.draw.randint(2, 4) for _ in range(2)]
        if self.type_name in OF_ANY_SIZE:
            return [self.draw.randint(33, 140) for _ in range(2)]
        sides = self.resized or pair(config["image_size"])
        # A backbone takes images of any size.
        return [side + self.draw.randint(0, 9) for side in sides] if config.get("model_type") == "dinov2" else sides

    def texts(self, number: int) -> Tensors:
        """Texts of some lengths, padded on the right: as many as there are images, or not."""
        config = self.config.get("text_config", self.config)
        if "vocab_size" not in config:
            return {}
        longest = config["max_position_embeddings"]
        lengths = np.array([[4, 1], [longest, 3, longest - 1]][number])
        numbers = np.random.default_rng(self.draw.getrandbits(32))
        # transformers 5.24 loads other vectors than the stored ones for padding.
        ids = [i for i in range(config["vocab_size"]) if i != config["pad_token_id"]]
        shape = [len(lengths), max(lengths)]
        return dict(
            input_ids=numbers.choice(ids, shape),
            attention_mask=(np.arange(max(lengths)) < lengths[:, None]).astype(np.int64),
            token_type_ids=numbers.integers(0, config.get("type_vocab_size", 1), shape),
        )  # fmt: skip

    def run(self, row: Row) -> None:
        model_class = self.save()
        if self.type_name in RESIZABLE and self.draw.maybe():
            step = pair(16 if self.type_name == "mobilevit" else self.config["patch_size"])
            self.resized = [patch * self.draw.randint(1, 6) for patch in step]
        inputs = self.batches()
        try:
            sessions = {target: self.compile(target, row) for target in self.args.targets.split(",")}
        except Refused:
            self.wanted(model_class, inputs)
            raise
        taken = {i.name for i in next(iter(sessions.values())).get_inputs()}
        inputs = [{name: t for name, t in batch.items() if name in taken} for batch in inputs]
        wanted = self.wanted(model_class, inputs)
        try:
            for target, session in sessions.items():
                names = [o.name for o in session.get_outputs()]
                for batch, expected in zip(inputs, wanted):
                    outputs = dict(zip(names, session.run(names, batch)))
                    row.worst = max(row.worst, self.compare(outputs, batch, expected, target))
        except Mismatch:
            single = self.reference(model_class, inputs, torch.float32)
            try:
                for batch, outputs, expected in zip(inputs, single, wanted):
                    self.compare({name: outputs[name] for name in names}, batch, expected, "")
            except Mismatch as e:
                raise Unusable(f"transformers itself differs in float32: {e}") from e
            raise

    def settings(self) -> list[str]:
        return ["--recipe", "image-size={}x{}".format(*self.resized)] if self.resized else []

    def keywords(self) -> dict:
        return dict(interpolate_pos_encoding=True) if self.resized and self.type_name in ASKED else {}

    def wanted(self, model_class: type, inputs: list[Tensors]) -> list[Tensors]:
        """What transformers computes in float64."""
        double = lambda t: t.astype(np.float64) if t.dtype == np.float32 else t
        doubles = [{name: double(t) for name, t in batch.items()} for batch in inputs]
        return self.reference(model_class, doubles, torch.float64)

    def compare(self, outputs: Tensors, inputs: Tensors, expected: Tensors, target: str) -> float:
        # The two classifiers of a distilled model, of which the graph gives the mean.
        lost = {"cls_logits", "distillation_logits"} | INNER.get(self.head, set())
        expected = {name: t for name, t in expected.items() if name not in lost}
        if set(outputs) != set(expected):
            raise Mismatch(f"{target}: outputs {sorted(outputs)}, transformers gives {sorted(expected)}")
        worst = 0.0
        for name, got in outputs.items():
            want = expected[name].astype(np.float32)
            if not np.isfinite(want).all():
                raise Unusable(f"{name} is not finite")
            worst = max(worst, difference(f"{target}, {name}", got, want, None, self.args.tolerance))
        return worst


if __name__ == "__main__":
    sys.exit(check_encoders.main(__doc__, VisionTrial, HEADS))
