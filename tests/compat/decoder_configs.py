"""Random small configurations of transformers' decoders, which check_decoders.py tries.

Every key that changes the computation is drawn, most often with a value that is not its default.
"""

from encoder_configs import ACTIVATIONS, EPS
from encoder_configs import Draw as EncoderDraw


class Draw(EncoderDraw):
    """Random choices that configurations are made of."""

    def rope(self, size: int, longest: int) -> dict | None:
        """Parameters of rotary embedding whose frequencies are the same at all lengths."""
        while True:
            rope = super().rope(size, longest)
            if rope is None or rope["rope_type"] not in ("dynamic", "longrope"):
                return rope

    def decoder(self, even: bool = True) -> dict:
        """What all decoders have, under the names that most have for it."""
        vocabulary = self.randint(53, 71)
        return dict(
            self.width(even),
            vocab_size=vocabulary,
            intermediate_size=self.randint(11, 37),
            max_position_embeddings=self.randint(20, 40),
            tie_word_embeddings=self.maybe(),
            pad_token_id=self.of(0, 1, 3, vocabulary - 1),
            num_labels=self.randint(1, 5),
            bos_token_id=5,
            eos_token_id=6,
        )

    def renamed(self, config: dict, **names: str) -> dict:
        """The same configuration under other names, or under none where the name is empty."""
        found = {names.get(key, key): value for key, value in config.items()}
        return {key: value for key, value in found.items() if key}

    def shared(self, heads: int) -> int:
        """A number of heads of keys."""
        return self.choice([n for n in range(1, heads + 1) if heads % n == 0])

    def llama(self) -> dict:
        """What Llama and its kin have."""
        config = self.decoder()
        heads = config["num_attention_heads"]
        size = self.of(config["hidden_size"] // heads, 4, 12)
        return config | dict(
            num_key_value_heads=self.shared(heads),
            head_dim=size,
            hidden_act=self.choice([name for name in ACTIVATIONS if name != "prelu"]),
            rms_norm_eps=self.choice(EPS),
            rope_parameters=self.rope(size, config["max_position_embeddings"]),
        )


def bloom(d: Draw) -> dict:
    names = dict(num_attention_heads="n_head", num_hidden_layers="n_layer", intermediate_size="", max_position_embeddings="")
    return d.renamed(d.decoder(even=False), **names) | dict(
        layer_norm_epsilon=d.choice(EPS),
        apply_residual_connection_post_layernorm=d.maybe(),
        pretraining_tp=d.of(1, 2),
        slow_but_exact=d.of(False, False, True),
    )


def falcon(d: Draw) -> dict:
    config, new, alibi, parallel = d.decoder(), d.maybe(), d.of(True, False, False), d.of(True, True, False)
    heads = config["num_attention_heads"]
    size = config["hidden_size"] // heads
    return d.renamed(config, intermediate_size="ffn_hidden_size") | dict(
        layer_norm_epsilon=d.choice(EPS),
        activation=named_activation(d),
        alibi=alibi,
        bias=d.maybe(),
        new_decoder_architecture=new,
        multi_query=d.maybe(),
        parallel_attn=parallel or new,
        num_kv_heads=d.shared(heads) if new else d.of(None, heads),
        num_ln_in_parallel_attn=d.of(None, 1, 2) if new else d.of(None, 1),
        rope_parameters=d.rope(size, config["max_position_embeddings"]),
    )


def mpt(d: Draw) -> dict:
    names = dict(
        hidden_size="d_model", num_attention_heads="n_heads", num_hidden_layers="n_layers", intermediate_size="",
        max_position_embeddings="max_seq_len",
    )  # fmt: skip
    attention = dict(
        alibi=d.of(True, True, False),
        alibi_bias_max=d.of(8, 4, 16),
        clip_qkv=d.of(None, 0.5, 1.0, 0.0),
        softmax_scale=d.of(None, 0.7, 0.1),
        attn_impl=d.of("torch", "triton"),
    )
    return d.renamed(d.decoder(even=False), **names) | dict(
        layer_norm_epsilon=d.choice(EPS), expansion_ratio=d.of(2, 4), attn_config=attention, no_bias=d.maybe()
    )


OLD_NAMES = dict(
    hidden_size="n_embd", num_attention_heads="n_head", num_hidden_layers="n_layer", intermediate_size="n_inner",
    max_position_embeddings="n_positions",
)  # fmt: skip


def old(d: Draw, even: bool = False) -> dict:
    """What the models after GPT-2 have."""
    config = d.decoder(even)
    if d.maybe():
        config = d.renamed(config, **OLD_NAMES)
    inner = "n_inner" if "n_inner" in config else "intermediate_size"
    config["n_inner"] = d.of(config.pop(inner), None)
    activation = named_activation(d)
    return config | dict(layer_norm_epsilon=d.choice(EPS), activation_function=activation)


def gptj(d: Draw) -> dict:
    config = old(d, even=True)
    heads = config.get("n_head") or config["num_attention_heads"]
    size = (config.get("n_embd") or config["hidden_size"]) // heads
    return config | dict(rotary_dim=d.of(2, 4, size))


def codegen(d: Draw) -> dict:
    config = gptj(d)
    heads, size = d.of(1, 2, 4), d.of(4, 8)
    hidden, count = ("n_embd", "n_head") if "n_embd" in config else ("hidden_size", "num_attention_heads")
    return config | {hidden: heads * size, count: heads, "rotary_dim": d.of(2, 4, size), "n_ctx": 64}


def gpt_neo(d: Draw) -> dict:
    config = d.decoder(even=False)
    layers = config["num_hidden_layers"]
    config = d.renamed(config, num_attention_heads="num_heads", num_hidden_layers="num_layers")
    types = d.of(
        [[[d.of("global", "local")], layers]], [[[d.of("global", "local") for _ in range(layers)], 1]],
        [[["global"], 1], [["local"], layers - 1]],
    )  # fmt: skip
    return config | dict(
        attention_types=types,
        window_size=d.of(1, 2, 4, 64),
        intermediate_size=d.of(config["intermediate_size"], None),
        layer_norm_epsilon=d.choice(EPS),
        activation_function=named_activation(d),
    )


def gpt_bigcode(d: Draw) -> dict:
    return old(d) | dict(
        multi_query=d.maybe(), scale_attn_weights=d.maybe(), attention_softmax_in_fp32=d.maybe(),
        scale_attention_softmax_in_fp32=d.maybe(),
    )  # fmt: skip


def named_activation(d: Draw) -> str:
    """A function without weights."""
    return d.choice([name for name in ACTIVATIONS if name != "prelu"])


def layered(config: dict, eps: str = "layer_norm_eps") -> dict:
    """Llama's configuration with layer normalization."""
    found = {eps if key == "rms_norm_eps" else key: value for key, value in config.items()}
    return {key: value for key, value in found.items() if key}


def apertus(d: Draw) -> dict:
    config = d.llama()
    return config | dict(hidden_act=d.of("xielu", "xielu", config["hidden_act"]), attention_bias=d.maybe())


def arcee(d: Draw) -> dict:
    return d.llama() | dict(attention_bias=d.maybe(), mlp_bias=d.maybe())


def biogpt(d: Draw) -> dict:
    return d.decoder(even=False) | dict(
        hidden_act=named_activation(d), layer_norm_eps=1e-2, scale_embedding=d.maybe(), layerdrop=0.1
    )


def gemma3n(d: Draw) -> dict:
    config = d.llama()
    layers, vectors = config["num_hidden_layers"] + 1, d.of(2, 3, 4)
    kinds = [d.of("full_attention", "sliding_attention") for _ in range(layers)]
    shared = d.randint(0, layers - 1)
    if set(kinds[: layers - shared]) != set(kinds):
        shared = 0
    rope = dict(
        full_attention=dict(rope_type="default", rope_theta=d.of(100.0, 1e6)),
        sliding_attention=dict(rope_type="default", rope_theta=d.of(100.0, 10_000.0)),
    )
    del config["hidden_act"]
    inner = config["intermediate_size"]
    return config | dict(
        num_hidden_layers=layers, layer_types=kinds, num_kv_shared_layers=shared, sliding_window=d.of(2, 3, 64),
        hidden_size_per_layer_input=d.of(3, 5), vocab_size_per_layer_input=config["vocab_size"] - d.of(0, 3),
        attention_bias=d.maybe(), hidden_activation=named_activation(d), final_logit_softcapping=d.of(5.0, 30.0),
        rope_parameters=d.of(None, rope), intermediate_size=d.of(inner, [inner + n for n in range(layers)]),
        altup_num_inputs=vectors, altup_active_idx=d.of(0, vectors - 1), altup_correct_scale=d.maybe(), laurel_rank=d.of(2, 5),
        activation_sparsity_pattern=[d.of(0.0, 0.5, 0.95) for _ in range(layers)],
    )  # fmt: skip


def gemma4(d: Draw) -> dict:
    config = d.llama()
    layers, heads = config["num_hidden_layers"] + 1, config["num_attention_heads"]
    kinds = [d.of("full_attention", "sliding_attention") for _ in range(layers - 1)] + ["full_attention"]
    shared = d.randint(0, layers - 1)
    if set(kinds[: layers - shared]) != set(kinds):
        shared = 0
    rope = dict(
        full_attention=dict(rope_type=d.of("proportional", "default"), rope_theta=d.of(100.0, 1e6)),
        sliding_attention=dict(rope_type="default", rope_theta=d.of(100.0, 10_000.0)),
    )
    if rope["full_attention"]["rope_type"] == "proportional":
        rope["full_attention"]["partial_rotary_factor"] = d.of(0.25, 0.5, 1.0)
    del config["hidden_act"]
    return config | dict(
        num_hidden_layers=layers, layer_types=kinds, num_kv_shared_layers=shared, sliding_window=d.of(2, 3, 4, 64),
        global_head_dim=d.of(4, 8, 12), num_global_key_value_heads=d.of(None, d.shared(heads)),
        attention_k_eq_v=d.maybe(), use_double_wide_mlp=d.maybe(), hidden_size_per_layer_input=d.of(0, 3, 5),
        vocab_size_per_layer_input=config["vocab_size"] + d.of(0, 3), attention_bias=d.maybe(),
        hidden_activation=named_activation(d), final_logit_softcapping=d.of(None, 5.0), rope_parameters=d.of(None, rope),
        use_bidirectional_attention=d.of(None, None, "vision", "all"),
    )  # fmt: skip


def cwm(d: Draw) -> dict:
    config = d.llama()
    kinds = ("full_attention", "sliding_attention")
    types = d.of(None, [d.choice(kinds) for _ in range(config["num_hidden_layers"])])
    return config | dict(mlp_bias=d.maybe(), sliding_window=d.of(2, 3, 64), layer_types=types)


def exaone(d: Draw) -> dict:
    return d.llama() | dict(attention_bias=d.maybe(), mlp_bias=d.maybe())


def glm(d: Draw) -> dict:
    config = d.llama()
    rope = config["rope_parameters"]
    if rope and d.maybe():
        rope["partial_rotary_factor"] = 1.0
    return config | dict(attention_bias=d.maybe())


def hunyuan(d: Draw) -> dict:
    config = d.llama()
    if d.maybe():
        config["rope_parameters"] = dict(
            rope_type="dynamic", rope_theta=d.of(100.0, 10_000.0), alpha=d.of(2.0, 1000.0), factor=1.0, beta_fast=32,
            beta_slow=1, mscale=1.0, mscale_all_dim=0.0,
        )  # fmt: skip
    return config | dict(attention_bias=d.maybe(), pretraining_tp=d.of(1, 2), eod_token_id=3)


def hyperclovax(d: Draw) -> dict:
    return d.llama() | dict(
        attention_bias=d.maybe(), mlp_bias=d.maybe(), use_post_norm=d.maybe(), embedding_multiplier=d.of(1.0, 3.0),
        logits_scaling=d.of(1.0, 4.0), residual_multiplier=d.of(1.0, 0.5), attention_multiplier=d.of(None, 0.2),
    )  # fmt: skip


def internlm3(d: Draw) -> dict:
    config, bias = d.llama(), d.maybe()
    names = d.of(dict(qkv_bias=bias, bias=bias), dict(attention_bias=bias, mlp_bias=bias))
    return config | names


def ministral(d: Draw) -> dict:
    config, window = d.llama(), d.of(None, 1, 3, 64)
    layers = config["num_hidden_layers"]
    kinds = ("full_attention", "sliding_attention") if window else ("full_attention",)
    types = d.of(None, [d.choice(kinds) for _ in range(layers)])
    return config | dict(sliding_window=window, layer_types=types)


def ministral3(d: Draw) -> dict:
    config = d.llama()
    longest = config["max_position_embeddings"]
    rope = d.of(None, dict(
        rope_type=d.of("default", "yarn"), rope_theta=d.of(100.0, 1e6), factor=d.of(2.0, 16.0), mscale=1.0,
        original_max_position_embeddings=d.of(4, longest // 2), llama_4_scaling_beta=d.of(0.1, 0.5),
        mscale_all_dim=d.of(1.0, 0.5),
    ))  # fmt: skip
    if rope and rope["rope_type"] == "default":
        rope = {key: value for key, value in rope.items() if key not in ("factor", "mscale", "mscale_all_dim")}
    return config | dict(rope_parameters=rope, sliding_window=d.of(None, None, 3, 64))


def modernbert_decoder(d: Draw) -> dict:
    config = layered(d.decoder(), "")
    layers, longest = config["num_hidden_layers"], config["max_position_embeddings"]
    size = config["hidden_size"] // config["num_attention_heads"]
    kinds = ("full_attention", "sliding_attention")
    config |= d.of(
        {}, dict(global_attn_every_n_layers=d.randint(1, 3)), dict(layer_types=[d.choice(kinds) for _ in range(layers)])
    )
    rope = {kind: d.rope(size, longest) or dict(rope_type="default") for kind in kinds}
    config |= d.of({}, dict(rope_parameters=rope), dict(global_rope_theta=500.0, local_rope_theta=50.0))
    return config | dict(
        local_attention=d.of(2, 4, 7, 128), norm_bias=d.maybe(), attention_bias=d.maybe(), mlp_bias=d.maybe(),
        norm_eps=d.choice(EPS), decoder_bias=d.maybe(), classifier_bias=d.maybe(), hidden_activation=named_activation(d),
        classifier_activation=named_activation(d), cls_token_id=5, sep_token_id=6,
    )  # fmt: skip


def nanochat(d: Draw) -> dict:
    return d.llama() | dict(attention_bias=d.maybe(), final_logit_softcapping=d.of(None, 5.0))


def jais2(d: Draw) -> dict:
    return layered(d.llama()) | dict(attention_bias=d.maybe(), mlp_bias=d.maybe())


def vaultgemma(d: Draw) -> dict:
    config = d.llama()
    kinds = ("full_attention", "sliding_attention")
    types = d.of(None, [d.choice(kinds) for _ in range(config["num_hidden_layers"])])
    del config["hidden_act"]
    return config | dict(
        attention_bias=d.maybe(), attn_logit_softcapping=d.of(None, 5.0), final_logit_softcapping=d.of(None, 5.0),
        hidden_activation=named_activation(d), layer_types=types, query_pre_attn_scalar=d.of(4, 16),
        sliding_window=d.of(2, 3, 64),
    )  # fmt: skip


def olmo(d: Draw) -> dict:
    return layered(d.llama(), "") | dict(attention_bias=d.maybe(), clip_qkv=d.of(None, 0.5, 1.0))


def persimmon(d: Draw) -> dict:
    config = layered(d.llama())
    for key in ("head_dim", "num_key_value_heads"):
        del config[key]
    # Half of a head turns in pairs.
    size = d.of(4, 8)
    config["hidden_size"] = size * config["num_attention_heads"]
    config["rope_parameters"] = d.rope(size, config["max_position_embeddings"])
    return config | dict(qk_layernorm=d.maybe())


def seed_oss(d: Draw) -> dict:
    biases = dict(attention_bias=d.maybe(), attention_out_bias=d.maybe(), mlp_bias=d.maybe())
    return d.llama() | biases


def xglm(d: Draw) -> dict:
    names = dict(
        hidden_size="d_model", num_attention_heads="attention_heads", num_hidden_layers="num_layers",
        intermediate_size="ffn_dim",
    )  # fmt: skip
    return d.renamed(d.decoder(even=False), **names) | dict(
        activation_function=named_activation(d), scale_embedding=d.maybe(), pad_token_id=d.of(0, 1, 3, 7), dropout=0.1
    )


# Each type, and what draws a configuration of it.
TYPES = {
    "apertus": apertus,
    "arcee": arcee,
    "biogpt": biogpt,
    "bloom": bloom,
    "codegen": codegen,
    "cwm": cwm,
    "exaone": exaone,
    "falcon": falcon,
    "gemma3n_text": gemma3n,
    "gemma4_text": gemma4,
    "glm": glm,
    "gpt_bigcode": gpt_bigcode,
    "gpt_neo": gpt_neo,
    "gptj": gptj,
    "hunyuan_v1_dense": hunyuan,
    "hyperclovax": hyperclovax,
    "internlm3": internlm3,
    "iquestcoder": exaone,
    "jais2": jais2,
    "ministral": ministral,
    "ministral3": ministral3,
    "modernbert-decoder": modernbert_decoder,
    "mpt": mpt,
    "nanochat": nanochat,
    "olmo": olmo,
    "persimmon": persimmon,
    "seed_oss": seed_oss,
    "vaultgemma": vaultgemma,
    "xglm": xglm,
}
