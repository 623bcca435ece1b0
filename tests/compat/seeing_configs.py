"""Random small configurations of transformers' models that see, for check_seeing.py."""

from collections.abc import Callable

import decoder_configs
import multimodal_configs
from decoder_configs import named_activation
from mixture_configs import without
from vision_configs import Draw as VisionDraw


class Draw(decoder_configs.Draw, VisionDraw):
    """Random choices that configurations are made of."""

    def tower(self, kind: str, per_side: int | None = None, side: int | None = None) -> dict:
        """A tower of images of squares of patches."""
        patch = self.of(2, 3, 4)
        width = self.width()
        return width | dict(
            model_type=kind, image_size=side or patch * (per_side or self.randint(2, 4)), patch_size=patch, num_channels=self.of(1, 3),
            intermediate_size=self.randint(11, 37), hidden_act=self.activation(), layer_norm_eps=self.of(1e-6, 1e-3),
            num_hidden_layers=self.randint(1, 3),
        )  # fmt: skip

    def clip_or_siglip(self) -> dict:
        """One of two towers."""
        return self.tower(self.of("clip_vision_model", "siglip_vision_model"))


def text(d: Draw) -> dict:
    """A decoder of one of some types."""
    usual = dict(llama=multimodal_configs.llama, mistral=multimodal_configs.mistral, qwen2=multimodal_configs.qwen2)
    kinds = usual | {kind: decoder_configs.TYPES[kind] for kind in ("arcee", "glm", "olmo", "seed_oss")}
    kind = d.of(*usual, *kinds)
    return longer(kinds[kind](d)) | dict(model_type=kind)


def longer(config: dict) -> dict:
    """With room for the places of images."""
    return without(config, "num_labels") | dict(max_position_embeddings=max(128, config["max_position_embeddings"]))


def whole(d: Draw, config: dict, tower: dict, **more: object) -> dict:
    """A model of a decoder and a tower."""
    tied = config.pop("tie_word_embeddings", False)
    return more | dict(text_config=config, vision_config=tower, tie_word_embeddings=tied)


def llava(d: Draw) -> dict:
    tower = d.clip_or_siglip()
    depth = tower["num_hidden_layers"]
    layer = d.of(-2, -1, depth, [-1, 0], [-2, -1, -1])
    strategy = d.of("default", "full")
    return whole(
        d, text(d), tower, image_token_index=1, vision_feature_layer=layer, vision_feature_select_strategy=strategy,
        multimodal_projector_bias=d.maybe(), projector_hidden_act=named_activation(d),
    )  # fmt: skip


def idefics3(kind: str) -> Callable[[Draw], dict]:
    def draw(d: Draw) -> dict:
        scale = d.of(1, 2, 3)
        tower = d.tower(kind, per_side=scale * d.randint(1, 3))
        return whole(d, longer(multimodal_configs.llama(d)) | dict(model_type="llama"), tower, image_token_id=1, scale_factor=scale)

    return draw


def gemma3(d: Draw) -> dict:
    config = multimodal_configs.gemma3(d)
    side = d.randint(1, 3)
    tower = d.tower("siglip_vision_model", per_side=side * d.randint(1, 2) + d.of(0, 0, 1))
    return whole(
        d, longer(config) | dict(model_type="gemma3_text"), tower, image_token_index=1, mm_tokens_per_image=side * side
    )


def paligemma(d: Draw) -> dict:
    config = longer(d.llama())
    if d.maybe():
        config |= dict(
            model_type="gemma2", sliding_window=d.of(2, 3, 64), query_pre_attn_scalar=d.of(4, 16), hidden_activation="gelu_pytorch_tanh",
            final_logit_softcapping=d.of(None, 5.0), attn_logit_softcapping=d.of(None, 7.0), rope_parameters=None,
        )  # fmt: skip
        config = without(config, "hidden_act")
    else:
        config |= dict(model_type="gemma", attention_bias=d.maybe(), hidden_act="gelu_pytorch_tanh", rope_parameters=None)
    tower = d.tower("siglip_vision_model") | dict(vision_use_head=d.maybe())
    return whole(d, config, tower, image_token_index=1, projection_dim=config["hidden_size"], hidden_size=config["hidden_size"])


def qwen_vl(text: Callable[[Draw], dict], kind: str, own: Callable[[Draw, dict, dict], dict]) -> Callable[[Draw], dict]:
    """A model whose images have any shape; `own` makes what towers of a kind have of the sizes that all have, and of the decoder's."""

    def draw(d: Draw) -> dict:
        config = longer(text(d))
        heads = d.randint(1, 3)
        tower = dict(
            depth=d.randint(1, 4), hidden_act=d.activation(), num_heads=heads, in_channels=3, patch_size=d.of(2, 3, 4),
            spatial_merge_size=d.of(1, 2, 2, 3), temporal_patch_size=d.of(1, 2),
        )  # fmt: skip
        if d.maybe():
            tower["rope_parameters"] = dict(rope_type="axial", rope_theta=d.of(100.0, 10000.0))
        tower |= own(d, tower | dict(width=heads * 4 * d.randint(1, 4)), config)
        return whole(
            d, config | dict(model_type=f"{kind}_text"), tower, image_token_id=1, video_token_id=2, vision_start_token_id=3,
            vision_end_token_id=4,
        )  # fmt: skip

    return draw


def of_qwen2(d: Draw, tower: dict, text: dict) -> dict:
    return dict(embed_dim=tower["width"], mlp_ratio=d.randint(1, 4), hidden_size=text["hidden_size"])


def of_qwen2_5(d: Draw, tower: dict, text: dict) -> dict:
    place = tower["spatial_merge_size"] * tower["patch_size"]
    return dict(
        hidden_size=tower["width"], out_hidden_size=text["hidden_size"], intermediate_size=d.randint(11, 37),
        window_size=place * d.randint(1, 3) + d.of(0, 1), fullatt_block_indexes=d.of([], [0], [1], [1, 3]),
    )  # fmt: skip


def of_qwen3(d: Draw, tower: dict, text: dict) -> dict:
    return dict(
        hidden_size=tower["width"], out_hidden_size=text["hidden_size"], intermediate_size=d.randint(11, 37),
        num_position_embeddings=d.of(1, 4, 9, 25), deepstack_visual_indexes=d.of([], [0], [1, 0], [0, 1, 2]),
    )  # fmt: skip


# Each type, and what draws a configuration of it.
TYPES = {
    "gemma3": gemma3,
    "idefics3": idefics3("idefics3_vision"),
    "llava": llava,
    "paligemma": paligemma,
    "qwen2_5_vl": qwen_vl(multimodal_configs.qwen2_vl, "qwen2_5_vl", of_qwen2_5),
    "qwen2_vl": qwen_vl(multimodal_configs.qwen2_vl, "qwen2_vl", of_qwen2),
    "qwen3_vl": qwen_vl(multimodal_configs.qwen3_vl, "qwen3_vl", of_qwen3),
    "qwen3_vl_moe": qwen_vl(multimodal_configs.qwen_vl_moe, "qwen3_vl_moe", of_qwen3),
    "smolvlm": idefics3("smolvlm_vision"),
}
