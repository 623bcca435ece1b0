"""Vision checkpoints with random weights, of the sizes that are in use, and Optimum's exports of them."""

from pathlib import Path

import torch
import transformers
from optimum.exporters.onnx import main_export

# The size of the images, the configuration, the class, Optimum's task, and what of the configuration is not its default.
MODELS = {
    "vit-base": (224, "ViTConfig", "ViTForImageClassification", "image-classification", {"num_labels": 1000}),
    "resnet-50": (224, "ResNetConfig", "ResNetForImageClassification", "image-classification", {"num_labels": 1000}),
    # Layers that are scaled by 1e-6, as at the start of training, would give the input.
    "convnext-tiny": (
        224,
        "ConvNextConfig",
        "ConvNextForImageClassification",
        "image-classification",
        {"num_labels": 1000, "layer_scale_init_value": 1.0},
    ),
    "segformer-b0": (512, "SegformerConfig", "SegformerForSemanticSegmentation", "semantic-segmentation", {"num_labels": 150}),
    "swin-tiny": (224, "SwinConfig", "SwinForImageClassification", "image-classification", {"num_labels": 1000}),
    "detr": (
        512,
        "DetrConfig",
        "DetrForObjectDetection",
        "object-detection",
        {"num_labels": 91, "use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None},
    ),
}


def make(name: str, folder: Path) -> None:
    """Writes a checkpoint whose batch norms have the statistics of random images."""
    size, config, model, _, settings = MODELS[name]
    torch.manual_seed(0)
    if name == "detr":
        backbone = transformers.ResNetConfig(out_features=["stage4"])
        settings = {**settings, "backbone_config": backbone}
    model = getattr(transformers, model)(getattr(transformers, config)(**settings))
    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.train()
    with torch.no_grad():
        for _ in range(20 if norms else 0):
            model(pixel_values=torch.randn(2, 3, size // 2, size // 2))
    model.eval().save_pretrained(folder)


def export(name: str, checkpoint: Path, folder: Path) -> None:
    """Writes Optimum's export."""
    main_export(
        str(checkpoint), str(folder), task=MODELS[name][3], library_name="transformers", local_files_only=True, do_validation=False
    )
