"""Random small configurations of transformers' multimodal models, whose text models check_decoders.py tries."""

from collections.abc import Callable

import decoder_configs
from decoder_configs import Draw, named_activation
from state_configs import qwen3_5, qwen3_5_moe
from mixture_configs import coordinates, kinds, llama4, qwen_vl_moe, without

# The towers of images, as small as they may be.
SIGLIP = dict(
    model_type="siglip_vision_model", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
    image_size=8, patch_size=4,
)  # fmt: skip
SIGLIP2 = without(SIGLIP, "image_size") | dict(model_type="siglip2_vision_model", num_patches=4)
CLIP = SIGLIP | dict(model_type="clip_vision_model")
PIXTRAL = SIGLIP | dict(model_type="pixtral", head_dim=4)
INTERNVL = without(SIGLIP, "model_type") | dict(image_size=[8, 8], patch_size=[4, 4])
QWEN = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=4, out_hidden_size=8)
QWEN2 = dict(depth=1, embed_dim=8, num_heads=2, patch_size=4)
LLAMA4 = without(SIGLIP, "model_type") | dict(
    vision_output_dim=8, projector_input_dim=8, projector_output_dim=8, patch_size=2
)
GEMMA4 = without(SIGLIP, "model_type", "image_size") | dict(head_dim=4, num_key_value_heads=2, position_embedding_size=16)


def whole(text: Callable[[Draw], dict], text_type: str, tower: dict, hidden: str = "", **more: object) -> Callable[[Draw], dict]:
    """A model of a text model and a tower, whose key `hidden` has the features of the text model."""

    def draw(d: Draw) -> dict:
        config = text(d)
        labels = dict(num_labels=config.pop("num_labels"), tie_word_embeddings=config.pop("tie_word_embeddings"))
        own = tower | ({hidden: config["hidden_size"]} if hidden else {})
        return labels | more | dict(text_config=config | dict(model_type=text_type), vision_config=own)

    return draw


def gemma3(d: Draw) -> dict:
    config = without(d.llama(), "hidden_act", "rope_parameters")
    return config | dict(
        attention_bias=d.maybe(), final_logit_softcapping=d.of(None, 5.0), hidden_activation=named_activation(d),
        layer_types=kinds(d, config, "full_attention", "sliding_attention"), query_pre_attn_scalar=d.of(4, 16),
        sliding_window=d.of(2, 3, 64),
    )  # fmt: skip


def lfm2(d: Draw) -> dict:
    config = without(d.llama(), "hidden_act", "head_dim", "rms_norm_eps")
    size = config["hidden_size"] // config["num_attention_heads"]
    return config | dict(
        rope_parameters=d.rope(size, config["max_position_embeddings"]), conv_bias=d.maybe(), conv_L_cache=d.of(2, 3),
        layer_types=["full_attention", *kinds(d, config, "full_attention", "conv")[1:]], block_multiple_of=d.of(1, 4),
    )  # fmt: skip


def qwen2_vl(d: Draw) -> dict:
    config = without(d.llama(), "head_dim")
    size = config["hidden_size"] // config["num_attention_heads"]
    return config | dict(rope_parameters=coordinates(d, size)) | d.of({}, dict(
        use_sliding_window=True, sliding_window=3, max_window_layers=d.randint(1, 2)
    ))  # fmt: skip


def qwen3_vl(d: Draw) -> dict:
    config = d.llama()
    return config | dict(attention_bias=d.maybe(), rope_parameters=coordinates(d, config["head_dim"]))


def llama(d: Draw) -> dict:
    return d.llama() | dict(attention_bias=d.maybe(), mlp_bias=d.maybe())


def mistral(d: Draw) -> dict:
    return d.llama() | dict(sliding_window=d.of(None, 2, 64))


def qwen2(d: Draw) -> dict:
    return without(d.llama(), "head_dim")


# Each type, and what draws a configuration of it.
TYPES = {
    "aya_vision": whole(qwen2, "qwen2", SIGLIP, image_token_index=1),
    "gemma3": whole(gemma3, "gemma3_text", SIGLIP, mm_tokens_per_image=4, image_token_index=1),
    "gemma4": whole(decoder_configs.gemma4, "gemma4_text", GEMMA4, audio_config=None),
    "idefics3": whole(llama, "llama", SIGLIP, image_token_id=1),
    "internvl": whole(qwen2, "qwen2", INTERNVL, image_token_id=1),
    "lfm2_vl": whole(lfm2, "lfm2", SIGLIP2, image_token_id=1),
    "llama4": whole(llama4, "llama4_text", LLAMA4, image_token_index=1),
    "llava": whole(llama, "llama", CLIP, image_token_index=1),
    "llava_next": whole(mistral, "mistral", CLIP, image_token_index=1),
    "llava_onevision": whole(qwen2, "qwen2", SIGLIP, image_token_index=1),
    "mistral3": whole(decoder_configs.ministral3, "ministral3", PIXTRAL, image_token_index=1),
    "qwen2_5_vl": whole(qwen2_vl, "qwen2_5_vl_text", QWEN, "out_hidden_size"),
    "qwen2_vl": whole(qwen2_vl, "qwen2_vl_text", QWEN2, "hidden_size"),
    "qwen3_5": whole(qwen3_5, "qwen3_5_text", QWEN, "out_hidden_size"),
    "qwen3_5_moe": whole(qwen3_5_moe, "qwen3_5_moe_text", QWEN, "out_hidden_size"),
    "qwen3_vl": whole(qwen3_vl, "qwen3_vl_text", QWEN | dict(deepstack_visual_indexes=[]), "out_hidden_size"),
    "qwen3_vl_moe": whole(qwen_vl_moe, "qwen3_vl_moe_text", QWEN | dict(deepstack_visual_indexes=[]), "out_hidden_size"),
    "smolvlm": whole(llama, "llama", SIGLIP, image_token_id=1),
}
