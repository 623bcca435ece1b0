"""Random small configurations of transformers' decoders with states of a fixed size, which check_decoders.py tries.

Texts are longer than the chunks that planish and the transformers library compute states in.
"""

from decoder_configs import Draw, named_activation
from encoder_configs import EPS


def hybrid(d) -> dict:
    """What decoders of attention and states have."""
    config = d.llama()
    return config | dict(max_position_embeddings=d.randint(60, 90), hidden_act=d.of("silu", "gelu", "relu"), rope_parameters=None)


def kinds(d, config: dict, state: str, attention: str = "full_attention") -> list:
    """The types of layers: at least one of each."""
    count = config["num_hidden_layers"] = d.randint(2, 3)
    layers = [d.of(state, attention) for _ in range(count)]
    return layers if len(set(layers)) > 1 else [state, attention, state][:count]


def lfm2(d) -> dict:
    config = d.renamed(hybrid(d), rms_norm_eps="")
    return config | dict(
        layer_types=kinds(d, config, "conv"), conv_L_cache=d.randint(2, 5), conv_bias=d.maybe(), norm_eps=d.choice(EPS),
        block_auto_adjust_ff_dim=d.maybe(), block_multiple_of=d.of(1, 8), block_ffn_dim_multiplier=d.of(1.0, 1.5),
    )  # fmt: skip


def delta(d) -> dict:
    """Gated DeltaNet beside attention."""
    config, heads = hybrid(d), d.randint(1, 3)
    return config | dict(
        layer_types=kinds(d, config, "linear_attention"), linear_conv_kernel_dim=d.randint(2, 4), linear_num_key_heads=heads,
        linear_num_value_heads=heads * d.randint(1, 3), linear_key_head_dim=d.randint(3, 9), linear_value_head_dim=d.randint(3, 9),
        attention_bias=d.maybe(), head_dim=d.of(8, 16),
    )  # fmt: skip


def qwen3_next(d) -> dict:
    """Without experts, which the transformers library does not compute in float64."""
    config = delta(d)
    count = config["num_hidden_layers"]
    return config | dict(
        num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=d.randint(9, 20),
        mlp_only_layers=list(range(count)), norm_topk_prob=d.maybe(),
    )  # fmt: skip


def mamba(d) -> dict:
    config = d.renamed(d.decoder(), num_attention_heads="", intermediate_size="", max_position_embeddings="")
    return config | dict(
        state_size=d.randint(2, 7), conv_kernel=d.randint(2, 5), expand=d.of(1, 2, 3), time_step_rank=d.of("auto", 3, 5),
        use_bias=d.maybe(), use_conv_bias=d.maybe(), hidden_act=d.of("silu", "gelu"), layer_norm_epsilon=d.choice(EPS),
        residual_in_fp32=d.maybe(),
    )  # fmt: skip


def mamba2(d) -> dict:
    groups, size = d.randint(1, 3), d.of(4, 6, 8)
    heads = 2 * groups * d.randint(1, 2)
    config = mamba(d) | dict(
        hidden_size=heads * size // 2, expand=2, num_heads=heads, head_dim=size, n_groups=groups, chunk_size=d.of(4, 16, 256),
        time_step_limit=d.of((0.0, float("inf")), (0.0, 0.9)),
    )  # fmt: skip
    return d.renamed(config, time_step_rank="")


def mixer(d, config: dict) -> dict:
    """Sizes of Mamba-2 within a hybrid."""
    groups = d.randint(1, 2)
    heads = 2 * groups * d.randint(1, 2)
    config["hidden_size"] = heads * d.of(4, 6)
    config["num_attention_heads"], config["num_key_value_heads"] = d.of((2, 1), (2, 2))
    return dict(
        mamba_n_heads=heads, mamba_d_head="auto", mamba_n_groups=groups, mamba_d_state=d.randint(3, 7), mamba_d_conv=d.randint(2, 4),
        mamba_expand=2, mamba_chunk_size=d.of(4, 16), mamba_conv_bias=d.maybe(), mamba_proj_bias=d.maybe(),
    )  # fmt: skip


def bamba(d) -> dict:
    config = d.renamed(hybrid(d), head_dim="")
    config["num_hidden_layers"] = d.randint(2, 3)
    return mixer(d, config) | config | dict(attn_layer_indices=[d.randint(0, 1)])


def falcon_h1(d) -> dict:
    config = hybrid(d)
    sizes = mixer(d, config)
    factor = lambda: d.of(1.0, 0.6, 1.4)
    return config | sizes | dict(
        mamba_d_ssm=2 * config["hidden_size"], mamba_rms_norm=d.maybe(), mamba_norm_before_gate=d.maybe(), head_dim=d.of(4, 8),
        key_multiplier=factor(), ssm_multipliers=[factor() for _ in range(5)], mlp_multipliers=[factor(), factor()],
        attention_in_multiplier=factor(), attention_out_multiplier=factor(), ssm_in_multiplier=factor(), ssm_out_multiplier=factor(),
        lm_head_multiplier=factor(), embedding_multiplier=factor(),
    )  # fmt: skip


def granitemoehybrid(d) -> dict:
    config = d.renamed(hybrid(d), head_dim="")
    types = kinds(d, config, "linear_attention")
    return mixer(d, config) | config | dict(
        num_local_experts=0, shared_intermediate_size=d.randint(11, 37), layer_types=types,
        position_embedding_type=d.of("rope", None), embedding_multiplier=d.of(1.0, 3.0), residual_multiplier=d.of(1.0, 0.8),
        attention_multiplier=d.of(1.0, 0.3), logits_scaling=d.of(1.0, 0.5),
    )  # fmt: skip


def jamba(d) -> dict:
    config = d.renamed(hybrid(d), head_dim="", rope_parameters="")
    config["num_hidden_layers"] = d.randint(2, 3)
    return config | dict(
        num_experts=1, attn_layer_period=2, attn_layer_offset=d.randint(0, 1), mamba_d_state=d.randint(2, 6), mamba_d_conv=d.randint(2, 4),
        mamba_dt_rank=d.of("auto", 3), mamba_expand=d.of(1, 2), mamba_conv_bias=d.maybe(), mamba_proj_bias=d.maybe(),
    )  # fmt: skip


def falcon_mamba(d: Draw) -> dict:
    config = d.decoder()
    names = dict(num_attention_heads="", intermediate_size="", max_position_embeddings="")
    return d.renamed(config, **names) | dict(
        state_size=d.of(2, 3, 4), expand=d.of(1, 2), conv_kernel=d.of(2, 3, 4), use_bias=d.maybe(), use_conv_bias=d.maybe(),
        time_step_rank=d.of("auto", 3), layer_norm_epsilon=d.choice(EPS), mixer_rms_eps=d.of(1e-6, 1e-2),
        hidden_act=named_activation(d),
    )  # fmt: skip


def qwen3_5(d: Draw) -> dict:
    config = d.llama()
    size = config["head_dim"] = 8
    part = d.of(0.5, 1.0)
    first = d.randint(0, int(size * part) // 2)
    rope = dict(
        rope_type="default", rope_theta=d.of(100.0, 10_000.0), partial_rotary_factor=part, mrope_interleaved=True,
        mrope_section=[int(size * part) // 2 - first, first, 0],
    )  # fmt: skip
    heads = d.of(1, 2)
    layers = config["num_hidden_layers"]
    return config | dict(
        hidden_act=d.of("silu", "gelu"), attention_bias=d.maybe(), rope_parameters=rope, linear_conv_kernel_dim=d.of(2, 3, 4),
        linear_key_head_dim=d.of(3, 4), linear_value_head_dim=d.of(4, 5), linear_num_key_heads=heads,
        linear_num_value_heads=heads * d.of(1, 2),
        layer_types=["full_attention", *[d.of("full_attention", "linear_attention") for _ in range(layers - 1)]],
    )  # fmt: skip


def qwen3_5_moe(d: Draw) -> dict:
    config, count = qwen3_5(d), d.randint(3, 6)
    del config["intermediate_size"]
    return config | dict(
        num_experts=count, num_experts_per_tok=d.randint(1, count), moe_intermediate_size=d.randint(5, 11),
        shared_expert_intermediate_size=d.randint(5, 11),
    )  # fmt: skip


def nemotron_h(d: Draw) -> dict:
    config, heads, groups = d.llama(), d.of(2, 4), d.of(1, 2)
    names = dict(rms_norm_eps="layer_norm_epsilon", hidden_act="mlp_hidden_act", num_hidden_layers="", rope_parameters="")
    kinds = ["full_attention", *[d.of("linear_attention", "moe", "mlp") for _ in range(3)]]
    experts, taken = groups * d.of(2, 3), d.randint(1, groups)
    return d.renamed(config, **names) | dict(
        mlp_hidden_act=d.of("relu2", "relu2", "relu", "silu"), layers_block_type=kinds, mlp_bias=d.maybe(), use_bias=d.maybe(),
        use_conv_bias=d.maybe(), mamba_num_heads=heads, mamba_head_dim=d.of(3, 4), n_groups=d.of(1, 2), ssm_state_size=d.of(3, 4),
        conv_kernel=d.of(2, 4), n_routed_experts=experts, n_group=groups, topk_group=taken,
        num_experts_per_tok=d.randint(1, taken * experts // groups), moe_intermediate_size=d.randint(5, 11),
        moe_shared_expert_intermediate_size=d.randint(5, 11), moe_latent_size=d.of(None, 6),
        routed_scaling_factor=d.of(1.0, 2.5), norm_topk_prob=d.maybe(),
    )  # fmt: skip


# Each type, and what draws a configuration of it.
STATES = {
    "bamba": bamba,
    "falcon_h1": falcon_h1,
    "falcon_mamba": falcon_mamba,
    "granitemoehybrid": granitemoehybrid,
    "jamba": jamba,
    "lfm2": lfm2,
    "mamba": mamba,
    "mamba2": mamba2,
    "nemotron_h": nemotron_h,
    "qwen3_5_moe_text": qwen3_5_moe,
    "qwen3_5_text": qwen3_5,
    "qwen3_next": qwen3_next,
}
