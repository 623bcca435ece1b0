#!/usr/bin/env python3
"""Holds compiled models of recordings against the transformers library, on random checkpoints of random configurations.

    check_speech.py PLANISH [--configurations 12] [--seed 0] [--targets onnx,ort] [--only TYPE...] [--keep DIR]

Configurations come from speech_configs.py. A model runs on batches of one and of three recordings, of the fewest samples that
make a frame and of more. What comes out has to be what the saved checkpoint gives in float64, within 1e-4 of the largest value.
The rest is as check_encoders.py does it.
"""

import sys

import numpy as np

import check_encoders
from check_encoders import Tensors, Trial
from check_vision import VisionTrial
from speech_configs import TYPES, Draw

HEADS = (
    "Model", "ForCTC", "ForSequenceClassification", "ForAudioFrameClassification", "ForXVector", "ForAudioClassification",
)  # fmt: skip
# Outputs of transformers that graphs leave out.
INNER = {"extract_features"}


class SpeechTrial(VisionTrial):
    """One configuration of a model of recordings with a head."""

    types, drawer = TYPES, Draw

    @classmethod
    def class_name(cls, type_name: str, head: str) -> str:
        return Trial.class_name.__func__(cls, type_name, head)

    def batches(self) -> list[Tensors]:
        return [self.recordings(rows, frames) for rows, frames in ((1, self.fewest()), (3, self.fewest() + self.draw.randint(1, 40)))]

    def fewest(self) -> int:
        """The fewest frames that the head takes."""
        if self.config.get("squeeze_factor"):
            return self.config["squeeze_factor"] + 3
        if self.head == "ForXVector":
            # A deviation is that of two frames and more.
            windows = zip(self.config["tdnn_kernel"], self.config["tdnn_dilation"])
            return 2 + sum((kernel - 1) * dilation for kernel, dilation in windows)
        # Each convolution after the transformer takes as many frames as its kernel, two of which are zeros around them.
        # A channel of one frame has no variance, which torch refuses.
        frames = 2
        if self.config.get("add_adapter"):
            for _ in range(self.config["num_adapter_layers"]):
                frames = max(2, (frames - 1) * self.config["adapter_stride"] + self.config["adapter_kernel_size"] - 2)
        return frames

    def recordings(self, rows: int, frames: int) -> Tensors:
        numbers = np.random.default_rng(self.draw.getrandbits(32))
        if "num_mel_bins" in self.config:
            shape = [rows, self.config["max_length"], self.config["num_mel_bins"]]
        else:
            samples = frames
            for kernel, stride in reversed(list(zip(self.config["conv_kernel"], self.config["conv_stride"]))):
                samples = (samples - 1) * stride + kernel
            shape = [rows, samples + self.draw.randint(0, self.config["conv_stride"][0] - 1)]
        return dict(input_values=numbers.normal(size=shape).astype(np.float32))

    def compare(self, outputs: Tensors, inputs: Tensors, expected: Tensors, target: str) -> float:
        return super().compare(outputs, inputs, {name: t for name, t in expected.items() if name not in INNER}, target)


if __name__ == "__main__":
    sys.exit(check_encoders.main(__doc__, SpeechTrial, HEADS))
