"""Random small configurations of transformers' decoders with states of a fixed size, which check_decoders.py tries."""

from decoder_configs import Draw, named_activation
from encoder_configs import EPS


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
TYPES = {
    "falcon_mamba": falcon_mamba,
    "nemotron_h": nemotron_h,
    "qwen3_5_moe_text": qwen3_5_moe,
    "qwen3_5_text": qwen3_5,
}
