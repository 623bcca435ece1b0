"""Random configurations of models of images, for check_vision.py."""

import dense_configs
from encoder_configs import Draw as TextDraw


class Draw(TextDraw):
    """Random choices that configurations are made of."""

    def images(self) -> dict:
        """Images of few patches, square or not."""
        patch = self.of(2, 3, 4)
        sides = [patch * self.randint(1, 4) for _ in range(2)]
        return dict(
            image_size=sides[0] if self.maybe() else sides, patch_size=patch, num_channels=self.of(1, 3)
        )

    def vision(self, quarter: bool = False) -> dict:
        """What most models have."""
        width = self.width()
        if quarter:
            width["hidden_size"] = width["num_attention_heads"] * self.of(4, 8, 12)
        return self.images() | width | dict(
            intermediate_size=self.randint(11, 37), hidden_act=self.activation(), layer_norm_eps=self.of(1e-12, 1e-6, 1e-3),
            num_labels=self.randint(1, 5),
        )  # fmt: skip


def vit(d: Draw) -> dict:
    return d.vision() | dict(qkv_bias=d.maybe())


def pooled(d: Draw) -> dict:
    return vit(d) | dict(pooler_act=d.activation(), pooler_output_size=d.of(None, 7))


def dinov2(d: Draw) -> dict:
    config = vit(d) | dict(mlp_ratio=d.of(1, 2, 3), use_swiglu_ffn=d.maybe(), use_mask_token=d.maybe())
    del config["intermediate_size"]
    return config


def registers(d: Draw) -> dict:
    config = dinov2(d) | dict(num_register_tokens=d.randint(1, 3))
    del config["use_mask_token"]
    return config


def dinov3(d: Draw) -> dict:
    biases = {f"{name}_bias": d.maybe() for name in ("query", "key", "value", "proj", "mlp")}
    return d.vision(quarter=True) | biases | dict(
        use_gated_mlp=d.maybe(), num_register_tokens=d.randint(0, 3), rope_theta=d.of(50.0, 100.0, 1000.0)
    )


def windows(d: Draw) -> dict:
    """What the versions of Swin have, for grids that windows and patches need not divide."""
    window, stages = d.randint(2, 4), d.randint(1, 3)
    heads = [d.of(1, 2, 3) for _ in range(stages)]
    patch = d.of(1, 2, 3)
    sides = [patch * (window * 2 ** (stages - 1) + d.randint(0, 5)) - d.of(0, 0, patch - 1) for _ in range(2)]
    return dict(
        image_size=sides[0] if d.maybe() else sides, patch_size=patch if d.maybe() else [patch, patch],
        num_channels=d.of(1, 3), embed_dim=6 * d.randint(1, 3), depths=[d.randint(1, 3) for _ in range(stages)],
        num_heads=heads, window_size=window, mlp_ratio=d.of(1.0, 1.5, 4.0), qkv_bias=d.maybe(), hidden_act=d.activation(),
        layer_norm_eps=d.of(1e-6, 1e-5, 1e-3), num_labels=d.randint(1, 5),
    )  # fmt: skip


def swin(d: Draw) -> dict:
    return windows(d) | dict(use_absolute_embeddings=d.maybe())


def swinv2(d: Draw) -> dict:
    config = windows(d)
    return config | dict(
        # Smaller grids than a window have smaller windows.
        window_size=config["window_size"] + d.of(0, 0, 2),
        pretrained_window_sizes=[d.of(0, 2, 6) for _ in config["depths"]],
    )  # fmt: skip


def yolos(d: Draw) -> dict:
    config = vit(d)
    patch, size = config["patch_size"], config["image_size"]
    sides = size if isinstance(size, list) else [size, size]
    middle = d.maybe()
    # Without positions in the middle, patches need not divide images.
    odd = 0 if middle else d.randint(0, patch - 1)
    return config | dict(
        image_size=[side + odd for side in sides], num_detection_tokens=d.randint(1, 5), use_mid_position_embeddings=middle
    )


def resnet(d: Draw) -> dict:
    """A ResNet in another model."""
    stages = [f"stage{number}" for number in range(1, 5)]
    return dict(
        model_type="resnet", num_channels=d.of(1, 3), embedding_size=d.randint(3, 9), layer_type=d.of("basic", "bottleneck"),
        hidden_sizes=[4 * d.randint(1, 5) for _ in stages], depths=[d.randint(1, 2) for _ in stages],
        # Functions whose results do not grow out of float32 from layer to layer.
        hidden_act=d.of("gelu", "leaky_relu", "relu", "silu", "tanh"),
        downsample_in_first_stage=d.maybe(), downsample_in_bottleneck=d.maybe(),
        out_features=d.of(stages, stages, stages, stages[-1:]),
    )  # fmt: skip


def resnet_alone(d: Draw) -> dict:
    config = resnet(d) | dict(num_labels=d.randint(1, 5))
    del config["model_type"], config["out_features"]
    return config


def convnext(d: Draw) -> dict:
    stages = d.randint(2, 4)
    return dict(
        num_channels=d.of(1, 3), patch_size=d.of(2, 4), num_stages=stages, hidden_sizes=[d.randint(3, 17) for _ in range(stages)],
        depths=[d.randint(1, 2) for _ in range(stages)], hidden_act=d.activation(), layer_norm_eps=d.of(1e-12, 1e-6, 1e-3),
        num_labels=d.randint(1, 5),
    )  # fmt: skip


def convnext_v1(d: Draw) -> dict:
    return convnext(d) | dict(layer_scale_init_value=d.of(0.0, 0.1))


def segformer(d: Draw) -> dict:
    stages = d.randint(1, 4)
    heads = [d.of(1, 2, 3) for _ in range(stages)]
    patches = [d.of(3, 5, 7) for _ in range(stages)]
    return dict(
        num_channels=d.of(1, 3), num_encoder_blocks=stages, depths=[d.randint(1, 2) for _ in range(stages)],
        sr_ratios=[d.of(1, 2, 4) for _ in range(stages)], hidden_sizes=[count * d.randint(4, 8) for count in heads],
        patch_sizes=patches, strides=[d.randint(2, 4) if stage == 0 else 2 for stage in range(stages)],
        num_attention_heads=heads, mlp_ratios=[d.of(1, 2, 3) for _ in range(stages)], hidden_act=d.activation(),
        layer_norm_eps=d.of(1e-12, 1e-6, 1e-3), decoder_hidden_size=d.randint(3, 17), num_labels=d.randint(1, 5),
    )  # fmt: skip


def detr(d: Draw) -> dict:
    backbone, hidden = resnet(d), d.of(32, 64)
    return dict(
        backbone_config=backbone, num_channels=backbone["num_channels"], use_timm_backbone=False, d_model=hidden,
        encoder_layers=d.randint(1, 2), encoder_attention_heads=8, encoder_ffn_dim=d.randint(11, 37),
        decoder_layers=d.randint(1, 3), decoder_attention_heads=d.of(2, 4, 8), decoder_ffn_dim=d.randint(11, 37),
        activation_function=d.activation(), num_queries=d.randint(1, 7), position_embedding_type=d.of("sine", "sine", "learned"),
        auxiliary_loss=d.maybe(), num_labels=d.randint(1, 5),
    )  # fmt: skip


def beit(d: Draw) -> dict:
    config = d.vision()
    square = isinstance(config["image_size"], int)
    return config | dict(
        # Of a square: transformers takes the table of others for one.
        use_absolute_position_embeddings=square and d.maybe(), use_relative_position_bias=d.maybe(),
        use_shared_relative_position_bias=d.maybe(), layer_scale_init_value=d.of(0.0, 0.1), use_mean_pooling=d.maybe(),
        use_mask_token=d.maybe(),
    )  # fmt: skip


def tower(d: Draw) -> dict:
    """A tower of square images, in which pixels of the last rows and columns may be of no patch."""
    config = d.vision()
    config["image_size"] = config["patch_size"] * d.randint(1, 4) + d.of(0, 0, 1)
    return config


def clip_vision(d: Draw) -> dict:
    return tower(d) | dict(projection_dim=d.randint(5, 11))


def clip_text(d: Draw) -> dict:
    text = d.text()
    # Of a token of the vocabulary, of one beyond it, and the one that older configurations have.
    text["eos_token_id"] = d.of(2, 6, 49407)
    return text | dict(projection_dim=d.randint(5, 11))


def clip(d: Draw) -> dict:
    return dict(
        text_config=clip_text(d), vision_config=clip_vision(d), projection_dim=d.randint(5, 11),
        logit_scale_init_value=d.of(2.6592, 0.5), num_labels=d.randint(1, 5),
    )  # fmt: skip


def chinese_clip_text(d: Draw) -> dict:
    return d.bert()


def chinese_clip(d: Draw) -> dict:
    return clip(d) | dict(text_config=chinese_clip_text(d))


def siglip_vision(d: Draw) -> dict:
    return tower(d) | dict(vision_use_head=d.maybe())


def siglip_text(d: Draw) -> dict:
    return d.text() | dict(projection_size=d.of(None, d.randint(5, 11)))


def siglip(d: Draw) -> dict:
    vision, text = tower(d), d.text()
    text["projection_size"] = vision["hidden_size"]
    return dict(text_config=text, vision_config=vision, num_labels=d.randint(1, 5))


def siglip2_vision(d: Draw) -> dict:
    config = siglip_vision(d) | dict(num_patches=d.of(1, 4, 9, 16))
    del config["image_size"]
    return config


def siglip2(d: Draw) -> dict:
    text, vision = siglip_text(d), siglip2_vision(d) | dict(vision_use_head=True)
    return dict(text_config=text | dict(projection_size=vision["hidden_size"]), vision_config=vision)


def rt_detr(d: Draw) -> dict:
    backbone = resnet(d)
    stages = d.of([2, 3, 4], [3, 4])
    layer = backbone["layer_type"]
    if layer == "basic":
        # Only layers that halve a map may change its channels.
        sizes = [4 * (number + d.randint(1, 3)) for number in range(0, 16, 4)]
        backbone |= dict(hidden_sizes=sizes, embedding_size=sizes[0], downsample_in_first_stage=False)
    else:
        backbone |= dict(embedding_size=2 * d.randint(2, 5))
    del backbone["out_features"]
    backbone |= dict(model_type="rt_detr_resnet", out_indices=stages)
    encoded, hidden = 4 * d.randint(2, 6), 8 * d.randint(1, 4)
    levels = len(stages) + d.of(0, 0, 1)
    return dict(
        backbone_config=backbone, num_channels=backbone["num_channels"], encoder_hidden_dim=encoded, d_model=hidden,
        encoder_in_channels=[backbone["hidden_sizes"][stage - 1] for stage in stages], feat_strides=[2 ** (s + 1) for s in stages],
        encoder_layers=d.randint(1, 2), encoder_attention_heads=d.of(1, 2, 4), encoder_ffn_dim=d.randint(11, 37),
        encode_proj_layers=d.of([len(stages) - 1], [0, len(stages) - 1]), positional_encoding_temperature=d.of(100, 10000),
        encoder_activation_function=d.of("gelu", "relu", "silu"), activation_function=d.of("silu", "relu", "gelu"),
        normalize_before=d.maybe(), hidden_expansion=d.of(0.5, 1.0), layer_norm_eps=d.of(1e-5, 1e-3), num_queries=d.randint(1, 7),
        decoder_in_channels=[encoded] * len(stages), decoder_ffn_dim=d.randint(11, 37), num_feature_levels=levels,
        decoder_n_points=d.randint(1, 4), decoder_layers=d.randint(1, 3), decoder_attention_heads=d.of(1, 2, 4, 8),
        decoder_activation_function=d.of("relu", "gelu"), num_labels=d.randint(1, 5),
    )  # fmt: skip


def rt_detr_v2(d: Draw) -> dict:
    config = rt_detr(d)
    return config | dict(decoder_n_levels=config["num_feature_levels"], decoder_offset_scale=d.of(0.5, 0.7))


def hgnet_v2(d: Draw) -> dict:
    """A HGNetV2, whose stages halve maps all but the first one."""
    stages, channels = 4, d.of(1, 3)
    stem, outs = d.randint(3, 9), [d.randint(4, 17) for _ in range(stages)]
    return dict(
        num_channels=channels, stem_channels=[channels, d.randint(4, 9), stem], stem_strides=[2, 1, 1, 2, 1],
        hidden_act=d.of("gelu", "relu", "silu", "tanh"), hidden_sizes=outs, depths=[1] * stages, embedding_size=stem,
        stage_in_channels=[stem, *outs[:-1]], stage_mid_channels=[d.randint(3, 9) for _ in outs], stage_out_channels=outs,
        stage_num_blocks=[d.randint(1, 2) for _ in outs], stage_downsample=[False, True, True, True],
        stage_downsample_strides=[2] * stages, stage_light_block=[d.maybe() for _ in outs],
        stage_kernel_size=[d.of(1, 3, 5) for _ in outs], stage_numb_of_layers=[d.randint(1, 3) for _ in outs],
        use_learnable_affine_block=d.maybe(),
    )  # fmt: skip


def hgnet_v2_alone(d: Draw) -> dict:
    return hgnet_v2(d) | dict(num_labels=d.randint(1, 5))


def d_fine(d: Draw) -> dict:
    config, backbone = rt_detr(d), hgnet_v2(d)
    stages = config["backbone_config"]["out_indices"]
    levels, encoded = config["num_feature_levels"], config["encoder_hidden_dim"]
    if d.maybe():
        # Maps that have the width of the decoder are not projected.
        heads = [heads for heads in (1, 2, 4, 8) if encoded % heads == 0]
        config |= dict(d_model=encoded, decoder_attention_heads=d.of(*heads))
    # transformers 5.24 builds no model of one layer: it misses the heads that would share those of the first one.
    layers, bins = d.randint(2, 3), 2 * d.randint(2, 8)
    return config | dict(
        backbone_config=backbone | dict(model_type="hgnet_v2", out_indices=stages), num_channels=backbone["num_channels"],
        encoder_in_channels=[backbone["hidden_sizes"][stage - 1] for stage in stages], eval_idx=d.of(-1, layers - 1),
        decoder_layers=layers, decoder_n_points=d.of(d.randint(1, 4), [d.randint(1, 4) for _ in range(levels)]),
        decoder_offset_scale=d.of(0.5, 0.7), max_num_bins=bins, reg_scale=d.of(2.0, 4.0, 8.0), up=d.of(0.25, 0.5),
        depth_mult=d.of(0.34, 0.5, 1.0), top_prob_values=d.randint(1, bins + 1), lqe_hidden_dim=d.randint(3, 17), lqe_layers=d.randint(1, 3),
    )  # fmt: skip


def square(config: dict) -> dict:
    """The same of square images."""
    return config | dict(image_size=config["patch_size"] * 3)


def mobilevit(d: Draw) -> dict:
    heads = d.of(1, 2, 3)
    sides = [d.randint(32, 100) for _ in range(2)]
    return dict(
        image_size=sides[0] if d.maybe() else sides, patch_size=d.of(1, 2, 3), num_channels=d.of(1, 3),
        hidden_sizes=[heads * d.randint(2, 6) for _ in range(3)], neck_hidden_sizes=[d.randint(3, 13) for _ in range(7)],
        num_attention_heads=heads, mlp_ratio=d.of(1.0, 1.5, 2.0), expand_ratio=d.of(1.0, 2.5, 4.0),
        # Functions whose results do not grow out of float32 from layer to layer.
        hidden_act=d.of("gelu", "leaky_relu", "relu", "silu", "tanh"), conv_kernel_size=d.of(1, 3, 5),
        output_stride=d.of(8, 16, 32), layer_norm_eps=d.of(1e-6, 1e-5), qkv_bias=d.maybe(),
        aspp_out_channels=d.randint(3, 9), atrous_rates=[d.randint(1, 6) for _ in range(3)], num_labels=d.randint(1, 5),
    )  # fmt: skip


# Each type, and what draws a configuration of it.
TYPES = {
    "beit": beit,
    "data2vec-vision": beit,
    "chinese_clip": chinese_clip,
    "chinese_clip_text_model": chinese_clip_text,
    "chinese_clip_vision_model": clip_vision,
    "clip": clip,
    "convnext": convnext_v1,
    "convnextv2": convnext,
    "clip_text_model": clip_text,
    "clip_vision_model": clip_vision,
    "mobilevit": mobilevit,
    "metaclip_2": clip,
    "metaclip_2_text_model": clip_text,
    "metaclip_2_vision_model": clip_vision,
    "siglip": siglip,
    "siglip2": siglip2,
    "siglip2_text_model": siglip_text,
    "siglip2_vision_model": siglip2_vision,
    "siglip_text_model": siglip_text,
    "siglip_vision_model": siglip_vision,
    "deit": pooled,
    "detr": detr,
    "depth_anything": lambda d: dense_configs.depth_anything(d, square(dinov2(d))),
    "dinov2": dinov2,
    "dinov2_with_registers": registers,
    "dinov3_vit": dinov3,
    "dpt": lambda d: dense_configs.dpt(d, square(vit(d)), square(dinov2(d))),
    "d_fine": d_fine,
    "hgnet_v2": hgnet_v2_alone,
    "resnet": resnet_alone,
    "rt_detr": rt_detr,
    "rt_detr_v2": rt_detr_v2,
    "segformer": segformer,
    "swin": swin,
    "swinv2": swinv2,
    "table-transformer": detr,
    "vit": pooled,
    "vit_msn": vit,
    "vitpose": lambda d: dense_configs.vitpose(d, vit(d)),
    "yolos": yolos,
}
