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
    "", "Model", "ModelWithProjection", "ForCTC", "ForSequenceClassification", "ForAudioFrameClassification", "ForXVector", "ForAudioClassification",
)  # fmt: skip
# Outputs of transformers that graphs leave out.
INNER = {"extract_features"}


class SpeechTrial(VisionTrial):
    """One configuration of a model of recordings with a head."""

    types, drawer = TYPES, Draw

    @classmethod
    def class_name(cls, type_name: str, head: str) -> str:
        if type_name == "parakeet_ctc":
            return "ParakeetForCTC" if head == "ForCTC" else "none"
        if type_name == "parakeet_encoder":
            return "ParakeetEncoder" if head == "" else "none"
        if head == "":
            return "none"
        return Trial.class_name.__func__(cls, type_name, head)

    @classmethod
    def features(cls, config: dict) -> tuple[int, int] | None:
        """The numbers of a frame of a model of features, and how many frames become one."""
        encoder = config.get("encoder_config", config)
        if "subsampling_factor" in encoder:
            layers = encoder["subsampling_factor"].bit_length() - 1
            return encoder["num_mel_bins"], encoder["subsampling_conv_stride"] ** layers
        return (config["feature_projection_input_dim"], 1) if "feature_projection_input_dim" in config else None

    def batches(self) -> list[Tensors]:
        if self.type_name.startswith("clap"):
            return [self.spectrograms(rows) | self.sentences(number) for number, rows in enumerate((1, 3))]
        return [self.recordings(rows, frames) for rows, frames in ((1, self.fewest()), (3, self.fewest() + self.draw.randint(1, 40)))]

    def spectrograms(self, rows: int) -> Tensors:
        """Features of recordings for CLAP, of fewer frames than its image takes or of as many."""
        config = self.config.get("audio_config", self.config)
        if "spec_size" not in config:
            return {}
        folds = config["spec_size"] // config["num_mel_bins"]
        longest = config["spec_size"] * folds
        frames = max(min(2, longest), longest - self.draw.of(0, self.draw.randint(0, 5)))
        numbers = np.random.default_rng(self.draw.getrandbits(32))
        features = numbers.normal(size=[rows, 4 if config["enable_fusion"] else 1, frames, config["num_mel_bins"]])
        return dict(input_features=features.astype(np.float32), is_longer=numbers.integers(0, 2, [rows, 1]) == 1)

    def sentences(self, number: int) -> Tensors:
        """Texts for CLAP."""
        config = self.config.get("text_config", self.config)
        if "vocab_size" not in config:
            return {}
        longest = config["max_position_embeddings"] - config["pad_token_id"] - 1
        lengths = np.array([[4, 1], [longest, 3, longest - 1]][number])
        numbers = np.random.default_rng(self.draw.getrandbits(32))
        mask = np.arange(max(lengths)) < lengths[:, None]
        ids = [i for i in range(config["vocab_size"]) if i != config["pad_token_id"]]
        ids = np.where(mask, numbers.choice(ids, mask.shape), config["pad_token_id"])
        return dict(input_ids=ids, attention_mask=mask.astype(np.int64))

    def fewest(self) -> int:
        """The fewest frames that the head takes."""
        # A channel of one frame has no variance, which torch refuses.
        frames = 2
        if self.head == "ForXVector":
            # A deviation is that of two frames and more.
            windows = zip(self.config["tdnn_kernel"], self.config["tdnn_dilation"])
            frames = 2 + sum((kernel - 1) * dilation for kernel, dilation in windows)
        # Each convolution after the transformer takes as many frames as its kernel, some of which are zeros around them.
        if self.config.get("add_adapter"):
            kernel, stride = self.config["adapter_kernel_size"], self.config["adapter_stride"]
            zeros = 2 * (stride // 2) if self.features(self.config) else 2
            for _ in range(self.config["num_adapter_layers"]):
                frames = max(2, (frames - 1) * stride + kernel - zeros)
        return frames

    def recordings(self, rows: int, frames: int) -> Tensors:
        numbers = np.random.default_rng(self.draw.getrandbits(32))
        if self.features(self.config):
            return self.frames(rows, frames, numbers)
        if "num_mel_bins" in self.config:
            shape = [rows, self.config["max_length"], self.config["num_mel_bins"]]
        else:
            samples = frames
            for kernel, stride in reversed(list(zip(self.config["conv_kernel"], self.config["conv_stride"]))):
                samples = (samples - 1) * stride + kernel
            shape = [rows, samples + self.draw.randint(0, self.config["conv_stride"][0] - 1)]
        return dict(input_values=numbers.normal(size=shape).astype(np.float32))

    def frames(self, rows: int, frames: int, numbers: np.random.Generator) -> Tensors:
        """Features of recordings of several lengths, with zeros after their ends."""
        size, stride = self.features(self.config)
        lengths = [stride * frames + self.draw.randint(0, stride - 1) for _ in range(rows)]
        # Every third batch of one recording has a last frame that is masked, as feature extractors give it.
        more = self.draw.of(0, 0, 1) if rows == 1 else 0
        for row in range(1, rows):
            lengths[row] = self.draw.randint(stride * self.fewest(), lengths[0])
        longest = max(lengths) + more
        mask = (np.arange(longest) < np.array(lengths)[:, None]).astype(np.int64)
        features = numbers.normal(size=[rows, longest, size]) * mask[:, :, None]
        return dict(input_features=features.astype(np.float32), attention_mask=mask)

    def compare(self, outputs: Tensors, inputs: Tensors, expected: Tensors, target: str) -> float:
        expected = {name: t for name, t in expected.items() if name not in INNER}
        if "text_config" in self.config:
            expected = {name: t for name, t in expected.items() if name in outputs}
        elif "attention_mask" in inputs:
            # What stands for frames that are not there is compared with nothing.
            expected = dict(expected)
            frames = {name for name, t in expected.items() if t.ndim == 3}
            if expected.pop("attention_mask", None) is not None or frames:
                kept = self.kept_frames(inputs["attention_mask"], {t.shape[1] for name, t in expected.items() if name in frames})
                outputs = {name: t[kept] if name in frames and t.shape[:2] == kept.shape else t for name, t in outputs.items()}
                expected = {name: t[kept] if name in frames else t for name, t in expected.items()}
        return super().compare(outputs, inputs, expected, target)

    def kept_frames(self, mask: np.ndarray, counts: set[int]) -> np.ndarray:
        """Which frames of an output are of a recording."""
        (count,) = counts
        lengths = mask.sum(1)
        encoder = self.config.get("encoder_config", self.config)
        if self.type_name.startswith("clap"):
            return mask == 1
        if "subsampling_factor" in encoder:
            kernel, stride = encoder["subsampling_conv_kernel_size"], encoder["subsampling_conv_stride"]
            for _ in range(encoder["subsampling_factor"].bit_length() - 1):
                lengths = (lengths + (kernel - 1) // 2 * 2 - kernel) // stride + 1
        elif self.config.get("add_adapter"):
            kernel, stride = self.config["adapter_kernel_size"], self.config["adapter_stride"]
            for _ in range(self.config["num_adapter_layers"]):
                lengths = (lengths + kernel // 2 * 2 - kernel) // stride + 1
        return np.arange(count) < lengths[:, None]


if __name__ == "__main__":
    sys.exit(check_encoders.main(__doc__, SpeechTrial, HEADS))
