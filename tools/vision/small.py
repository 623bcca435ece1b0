"""A small network of convolutions with random weights, as torch exports it: plain, depthwise, with a residual."""

from pathlib import Path

import torch
from torch import nn

SIZE = 96


def layer(inner: int, out: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inner, out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(out), nn.ReLU6())


class Network(nn.Module):
    """Four stages and a classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(layer(3, 32, stride=2), layer(32, 32, groups=32), layer(32, 64, kernel=1))
        self.pool = nn.MaxPool2d(2)
        self.residual = nn.Sequential(layer(64, 32, kernel=1), layer(32, 64))
        self.last = nn.Sequential(layer(64, 64, stride=2, groups=64), layer(64, 128, kernel=1))
        self.classifier = nn.Linear(128, 100)

    def forward(self, pixel_values):
        x = self.pool(self.stem(pixel_values))
        x = self.last(x + self.residual(x))
        return self.classifier(x.mean((2, 3)))


def export(path: Path) -> None:
    torch.manual_seed(0)
    network = Network()
    with torch.no_grad():
        for _ in range(20):
            network(torch.randn(8, 3, SIZE, SIZE))
    names = {"input_names": ["pixel_values"], "output_names": ["logits"], "dynamic_axes": {"pixel_values": {0: "batch"}}}
    # Batch norms stay operators.
    training = {"training": torch.onnx.TrainingMode.PRESERVE, "do_constant_folding": False}
    network.eval()
    torch.onnx.export(network, torch.randn(1, 3, SIZE, SIZE), str(path), dynamo=False, opset_version=17, **names, **training)
