#!/usr/bin/env python3
"""Trains a detector, a segmenter and a depth model on one photograph alone, and writes them as checkpoints.

    picture_models.py WHEEL OUT

WHEEL is that of scikit-image 0.26, which ships the photograph `motorcycle_left.png` and its measured disparities (Middlebury
2014 stereo benchmark). OUT gets photo/motorcycle.png of half of its height and width, and detect/, segment/ and depth/: config.json,
model.safetensors, preprocessor_config.json. The boxes and the polygons of the labels below are drawn by hand. The models know nothing
but this photograph: they show what `planish predict --draw` draws (docs/pictures.md). Needs torch, transformers==5.24.0, Pillow.
"""

import argparse
import io
import json
import zipfile
from pathlib import Path
from typing import Callable, Tuple

import numpy as np
import torch
from PIL import Image, ImageDraw
from transformers import (
    DepthAnythingConfig,
    DepthAnythingForDepthEstimation,
    Dinov2Config,
    PreTrainedModel,
    SegformerConfig,
    SegformerForSemanticSegmentation,
    YolosConfig,
    YolosForObjectDetection,
)

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]

# Left, top, right, bottom in pixels of the whole photograph, 741 x 500.
OBJECTS = [
    ("motorcycle", (90, 88, 684, 452)),
    ("wheel", (120, 236, 281, 404)),
    ("wheel", (512, 290, 684, 452)),
    ("bench", (38, 88, 285, 308)),
    ("headlight", (505, 120, 566, 190)),
]

SEGMENTS = {
    "wall": [(0, 0), (741, 0), (741, 260), (0, 260)],
    "floor": [(0, 228), (120, 225), (300, 190), (480, 265), (741, 285), (741, 500), (0, 500)],
    "shelf": [(340, 0), (720, 0), (712, 292), (480, 272), (342, 250)],
    "bench": [(38, 90), (58, 110), (270, 105), (285, 195), (160, 215), (60, 308), (42, 290)],
    "motorcycle": [
        (90, 200), (135, 150), (250, 165), (300, 205), (365, 190), (470, 165), (468, 120), (505, 95), (560, 130), (566, 185),
        (545, 205), (575, 265), (640, 290), (680, 360), (680, 420), (640, 452), (570, 430), (520, 380), (510, 320), (480, 290),
        (465, 345), (420, 375), (350, 385), (340, 435), (325, 435), (322, 375), (270, 365), (250, 395), (200, 404), (140, 380),
        (120, 320), (125, 270), (150, 240), (105, 245),
    ],
}  # fmt: skip


def pixels(photo: Image.Image, height: int, width: int) -> torch.Tensor:
    """f32[1, 3, height, width], normalized as the processors that are written here say."""
    resized = photo.resize((width, height), Image.Resampling.BICUBIC)
    numbers = (np.asarray(resized, dtype=np.float32) / 255 - np.array(MEAN)) / np.array(STD)
    return torch.from_numpy(numbers.astype(np.float32)).permute(2, 0, 1)[None]


def train(model: PreTrainedModel, steps: int, loss: Callable[[], torch.Tensor]) -> None:
    """Fits a model to what `loss` asks for."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    print(f"{type(model).__name__}: loss {value.item():.4f} after {steps} steps")


def save(model: PreTrainedModel, out: Path, kind: str, size: Tuple[int, int]) -> None:
    model.eval().save_pretrained(out)
    processor = {
        "image_processor_type": kind, "do_resize": True, "size": dict(zip(("height", "width"), size)), "resample": 3,
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": MEAN, "image_std": STD,
    }  # fmt: skip
    (out / "preprocessor_config.json").write_text(json.dumps(processor, indent=2) + "\n")


def labels(names: list) -> dict:
    return {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}


def detector(photo: Image.Image, out: Path) -> None:
    names = sorted({name for name, _ in OBJECTS})
    config = YolosConfig(
        image_size=[160, 240], patch_size=16, hidden_size=96, intermediate_size=192, num_hidden_layers=4, num_attention_heads=4,
        num_detection_tokens=10, hidden_dropout_prob=0.0, use_mid_position_embeddings=False, **labels(names),
    )  # fmt: skip
    model, given = YolosForObjectDetection(config), pixels(photo, 160, 240)
    width, height = photo.size
    classes = torch.tensor([names.index(name) for name, _ in OBJECTS] + [len(names)] * (10 - len(OBJECTS)))
    sides = torch.tensor([box for _, box in OBJECTS], dtype=torch.float32) / torch.tensor([width, height] * 2)
    boxes = torch.cat([(sides[:, :2] + sides[:, 2:]) / 2, sides[:, 2:] - sides[:, :2]], dim=1)

    def loss() -> torch.Tensor:
        found = model(given)
        of_boxes = (found.pred_boxes[0, : len(OBJECTS)] - boxes).abs().mean()
        return torch.nn.functional.cross_entropy(found.logits[0], classes) + 5 * of_boxes

    train(model, 400, loss)
    save(model, out, "YolosImageProcessor", (160, 240))


def segmenter(photo: Image.Image, out: Path) -> None:
    names = list(SEGMENTS)
    config = SegformerConfig(
        hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 3, 4], decoder_hidden_size=64,
        drop_path_rate=0.0, classifier_dropout_prob=0.0, **labels(names),
    )  # fmt: skip
    model, given = SegformerForSemanticSegmentation(config), pixels(photo, 256, 384)
    drawn = Image.new("L", photo.size)
    for number, name in enumerate(names):
        ImageDraw.Draw(drawn).polygon(SEGMENTS[name], fill=number)
    wanted = torch.from_numpy(np.array(drawn.resize((96, 64), Image.Resampling.NEAREST), dtype=np.int64))[None]
    train(model, 250, lambda: torch.nn.functional.cross_entropy(model(given).logits, wanted))
    save(model, out, "SegformerImageProcessor", (256, 384))


def depth(photo: Image.Image, disparity: np.ndarray, out: Path) -> None:
    backbone = Dinov2Config(
        image_size=252, patch_size=14, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, mlp_ratio=2,
        out_features=["stage1", "stage2", "stage3", "stage4"], reshape_hidden_states=False, apply_layernorm=True,
    )  # fmt: skip
    config = DepthAnythingConfig(
        backbone_config=backbone, patch_size=14, reassemble_hidden_size=64, neck_hidden_sizes=[16, 24, 32, 48],
        fusion_hidden_size=32, head_hidden_size=16,
    )  # fmt: skip
    model, given = DepthAnythingForDepthEstimation(config), pixels(photo, 252, 252)
    known = torch.from_numpy(np.isfinite(disparity))
    nearest = disparity[np.isfinite(disparity)].max()
    wanted = torch.from_numpy(np.where(np.isfinite(disparity), disparity / nearest, 0).astype(np.float32))

    def loss() -> torch.Tensor:
        found = model(given).predicted_depth[:, None]
        found = torch.nn.functional.interpolate(found, size=wanted.shape, mode="bilinear")[0, 0]
        return (found - wanted)[known].abs().mean()

    train(model, 350, loss)
    save(model, out, "DPTImageProcessor", (252, 252))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    with zipfile.ZipFile(args.wheel) as wheel:
        photo = Image.open(io.BytesIO(wheel.read("skimage/data/motorcycle_left.png"))).convert("RGB")
        disparity = np.load(io.BytesIO(wheel.read("skimage/data/motorcycle_disp.npz")))["arr_0"]
    (args.out / "photo").mkdir(parents=True, exist_ok=True)
    half = photo.resize((photo.width // 2, photo.height // 2), Image.Resampling.LANCZOS)
    half.save(args.out / "photo" / "motorcycle.png")
    torch.manual_seed(1)
    detector(photo, args.out / "detect")
    segmenter(photo, args.out / "segment")
    depth(photo, disparity, args.out / "depth")


if __name__ == "__main__":
    main()
