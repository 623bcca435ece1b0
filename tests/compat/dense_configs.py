"""Random configurations of models of images that give maps, for check_vision.py."""


def neck(d, layers: int) -> dict:
    """What fuses the tokens of some layers."""
    return dict(
        neck_hidden_sizes=[d.randint(3, 9) for _ in range(layers)],
        reassemble_factors=[d.of(4, 3, 2, 1, 0.5, 0.3, 0.25) for _ in range(layers)],
        fusion_hidden_size=d.randint(4, 11), head_in_index=d.of(-1, -1, 0, layers - 1),
    )  # fmt: skip


def stages(d, layers: int) -> list[int]:
    """Some layers of a model in order."""
    return sorted(d.sample(range(1, layers + 1), d.randint(2, layers)))


def backbone(d, config: dict) -> dict:
    """DINOv2 of square images, and the layers that another model takes."""
    image = config["patch_size"] * d.randint(2, 4)
    layers = d.randint(2, 5)
    return config | dict(
        model_type="dinov2", image_size=image, num_hidden_layers=layers, apply_layernorm=d.maybe(),
        reshape_hidden_states=False,
    ) | d.of(dict(out_indices=stages(d, layers)), dict(out_features=[f"stage{n}" for n in stages(d, layers)]))  # fmt: skip


def taken(config: dict) -> int:
    return len(config.get("out_indices") or config["out_features"])


def depth_anything(d, dinov2: dict) -> dict:
    inner = backbone(d, dinov2)
    return neck(d, taken(inner)) | dict(
        backbone_config=inner, patch_size=inner["patch_size"], reassemble_hidden_size=inner["hidden_size"],
        head_hidden_size=d.randint(3, 9), depth_estimation_type=d.of("relative", "metric"), max_depth=d.of(1, 20, 80),
    )  # fmt: skip


def dpt(d, vit: dict, dinov2: dict) -> dict:
    norms = d.maybe()
    head = dict(
        readout_type=d.of("ignore", "add", "project"), use_batch_norm_in_fusion_residual=norms,
        use_bias_in_fusion_residual=d.of(None, True, False), add_projection=False, num_labels=d.randint(2, 5),
        use_auxiliary_head=d.maybe(),
    )  # fmt: skip
    if d.random() < 0.4:
        inner = backbone(d, dinov2)
        # Its own hidden size is not read, but the function of the read-out is.
        return neck(d, taken(inner)) | head | dict(backbone_config=inner, hidden_act=d.activation())
    layers = d.randint(2, 5)
    indices = [n - 1 for n in stages(d, layers)]
    side = d.randint(2, 4)
    return vit | neck(d, len(indices)) | head | dict(
        image_size=vit["patch_size"] * side, num_hidden_layers=layers, backbone_out_indices=indices,
        pooler_output_size=d.of(None, 7), pooler_act=d.activation(),
    )  # fmt: skip


def vitpose(d, config: dict) -> dict:
    patch = d.of(5, 7, 8)
    layers = d.randint(1, 4)
    inner = config | dict(
        model_type="vitpose_backbone", num_hidden_layers=layers, out_indices=[d.randint(1, layers)], mlp_ratio=d.of(1, 2, 4),
        patch_size=[patch] * 2, image_size=[patch * d.randint(1, 4) for _ in range(2)],
    )  # fmt: skip
    del inner["intermediate_size"], inner["num_labels"]
    return dict(
        backbone_config=inner, num_labels=d.randint(1, 5), scale_factor=d.of(1, 2, 3, 4), use_simple_decoder=d.maybe()
    )
