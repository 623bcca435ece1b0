"""Random small configurations of transformers' decoders with experts or latent attention, which check_decoders.py tries."""

from decoder_configs import Draw, layered

# The functions of gates that planish has for experts.
EXPERT_ACTIVATIONS = ("gelu", "gelu_new", "linear", "quick_gelu", "relu", "silu")


def experts(d: Draw, count: str = "num_experts") -> dict:
    """Llama's configuration with experts."""
    number = d.randint(3, 7)
    return d.llama() | {
        "hidden_act": d.choice(EXPERT_ACTIVATIONS), count: number, "num_experts_per_tok": d.randint(1, number),
        "moe_intermediate_size": d.randint(5, 19), "norm_topk_prob": d.maybe(),
    }  # fmt: skip


def deepseek(d: Draw, count: str = "n_routed_experts", shared: str = "n_shared_experts") -> dict:
    """The experts of DeepSeek-V3."""
    groups, size = d.of(1, 1, 2, 4), d.randint(2, 3)
    taken = d.randint(1, groups)
    return experts(d, count) | {
        count: groups * size, "n_group": groups, "topk_group": taken, "num_experts_per_tok": d.randint(1, taken * size),
        shared: d.randint(1, 2), "routed_scaling_factor": d.of(1.0, 2.5),
    }  # fmt: skip


def kinds(d: Draw, config: dict, *names: str) -> list[str]:
    """A kind of each layer."""
    return [d.choice(names) for _ in range(config["num_hidden_layers"])]


def windows(d: Draw, config: dict) -> dict:
    """Windows in some layers."""
    return dict(sliding_window=d.of(2, 3, 4, 64), layer_types=kinds(d, config, "full_attention", "sliding_attention"))


def without(config: dict, *names: str) -> dict:
    return {key: value for key, value in config.items() if key not in names}


def afmoe(d: Draw) -> dict:
    config = experts(d)
    config |= d.of(dict(sliding_window=3, global_attn_every_n_layers=2), windows(d, config))
    return without(config, "norm_topk_prob") | dict(
        attention_bias=d.maybe(), mup_enabled=d.maybe(), num_dense_layers=d.randint(0, 2),
        num_shared_experts=d.randint(1, 2), route_scale=d.of(1.0, 2.5),
    )  # fmt: skip


def exaone_moe(d: Draw) -> dict:
    config = deepseek(d, "num_experts", "num_shared_experts")
    config |= d.of(dict(sliding_window=3, sliding_window_pattern=2), dict(sliding_window=4, sliding_window_pattern=3), windows(d, config))
    return config | d.of(
        dict(first_k_dense_replace=d.randint(0, 2)), dict(mlp_layer_types=kinds(d, config, "dense", "sparse"))
    )


def glm4_moe_lite(d: Draw) -> dict:
    config = latent(d, deepseek(d))
    return config | d.of({}, dict(mlp_layer_types=kinds(d, config, "dense", "sparse")))


def latent(d: Draw, config: dict) -> dict:
    """Keys and values of latents."""
    turning = d.of(4, 8)
    return without(config, "head_dim") | dict(
        q_lora_rank=d.of(None, 7), kv_lora_rank=d.of(6, 9), qk_nope_head_dim=d.of(5, 8), qk_rope_head_dim=turning,
        v_head_dim=d.of(5, 8), num_key_value_heads=config["num_attention_heads"], attention_bias=d.maybe(),
        rope_interleave=d.maybe(), rope_parameters=d.rope(turning, config["max_position_embeddings"]),
    )  # fmt: skip


def granitemoeshared(d: Draw) -> dict:
    config = without(experts(d, "num_local_experts"), "head_dim", "moe_intermediate_size", "norm_topk_prob")
    size = config["hidden_size"] // config["num_attention_heads"]
    return config | dict(
        rope_parameters=d.rope(size, config["max_position_embeddings"]), attention_bias=d.maybe(),
        shared_intermediate_size=d.of(0, 7, 12), **multipliers(d),
    )  # fmt: skip


def multipliers(d: Draw) -> dict:
    return dict(
        embedding_multiplier=d.of(1.0, 3.0), logits_scaling=d.of(1.0, 4.0), residual_multiplier=d.of(1.0, 0.5),
        attention_multiplier=d.of(1.0, 0.2),
    )  # fmt: skip


def llama4(d: Draw) -> dict:
    config = without(experts(d, "num_local_experts"), "moe_intermediate_size", "norm_topk_prob")
    layers = config["num_hidden_layers"]
    turning = d.of({}, dict(no_rope_layer_interval=d.of(1, 2)), dict(no_rope_layers=[d.of(0, 1) for _ in range(layers)]))
    config |= turning | d.of(
        {}, dict(interleave_moe_layer_step=d.of(1, 2)), dict(moe_layers=[n for n in range(layers) if d.maybe()])
    )
    return config | dict(
        attention_bias=d.maybe(), use_qk_norm=d.maybe(), attn_temperature_tuning=d.maybe(), floor_scale=d.of(3, 5),
        attn_scale=d.of(0.1, 0.7), attention_chunk_size=d.of(3, 4, 100), intermediate_size_mlp=d.randint(11, 37),
    )  # fmt: skip


def lfm2_moe(d: Draw) -> dict:
    config = without(layered(experts(d), "norm_eps"), "hidden_act", "head_dim")
    size = config["hidden_size"] // config["num_attention_heads"]
    return config | dict(
        rope_parameters=d.rope(size, config["max_position_embeddings"]), conv_bias=d.maybe(), conv_L_cache=d.of(2, 3, 4),
        layer_types=["full_attention", *kinds(d, config, "full_attention", "conv")[1:]], num_dense_layers=d.randint(0, 2), use_expert_bias=d.maybe(),
        routed_scaling_factor=d.of(1.0, 2.0),
    )  # fmt: skip


def minimax_m2(d: Draw) -> dict:
    config = without(experts(d, "num_local_experts"), "moe_intermediate_size", "norm_topk_prob")
    if (rope := config["rope_parameters"]) and rope["rope_type"] == "default":
        rope["partial_rotary_factor"] = d.of(0.5, 1.0)
    return config


def qwen_vl_moe(d: Draw) -> dict:
    config = without(experts(d), "norm_topk_prob")
    return config | dict(
        attention_bias=d.maybe(), decoder_sparse_step=d.of(1, 1, 2), mlp_only_layers=d.of([], [0]),
        rope_parameters=coordinates(d, config["head_dim"]),
    )  # fmt: skip


def coordinates(d: Draw, size: int) -> dict:
    """A rotary embedding by coordinates of images."""
    first, second = d.randint(0, size // 2), d.randint(0, size // 2)
    first, second = min(first, second), max(first, second)
    return dict(
        rope_type="default", rope_theta=d.of(100.0, 10_000.0),
        mrope_section=[first, second - first, size // 2 - second],
    )  # fmt: skip


def solar_open(d: Draw) -> dict:
    return without(deepseek(d), "intermediate_size") | dict(attention_bias=d.maybe())


def deepseek_v3(d: Draw) -> dict:
    return latent(d, deepseek(d)) | dict(first_k_dense_replace=d.randint(0, 2))


def youtu(d: Draw) -> dict:
    # The class makes the row of padding 0 when it has loaded a checkpoint.
    return latent(d, d.llama()) | dict(pad_token_id=None)


# Each type, and what draws a configuration of it.
TYPES = {
    "afmoe": afmoe,
    "deepseek_v3": deepseek_v3,
    "exaone_moe": exaone_moe,
    "glm4_moe_lite": glm4_moe_lite,
    "granitemoeshared": granitemoeshared,
    "lfm2_moe": lfm2_moe,
    "llama4_text": llama4,
    "minimax_m2": minimax_m2,
    "solar_open": solar_open,
    "youtu": youtu,
}
