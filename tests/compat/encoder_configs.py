"""Random small configurations of transformers' encoders of text, which check_encoders.py tries.

Every key that changes the computation is drawn, most often with a value that is not its default. Sizes differ from one
another where they may.
"""

import random

# All functions of the transformers library that have no weights, and one that has.
ACTIVATIONS = (
    "gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python", "gelu_python_tanh", "gelu_pytorch_tanh",
    "hardswish", "laplace", "leaky_relu", "linear", "mish", "prelu", "quick_gelu", "relu", "relu2", "relu6", "sigmoid",
    "silu", "sqrtsoftplus", "swish", "tanh",
)  # fmt: skip
EPS = (1e-12, 1e-7, 1e-5, 1e-2)


class Draw(random.Random):
    """Random choices that configurations are made of."""

    def of(self, *values):
        return self.choice(values)

    def maybe(self) -> bool:
        return self.random() < 0.5

    def activation(self) -> str:
        return self.choice(ACTIVATIONS)

    def width(self, even: bool = False) -> dict:
        """Heads of 4 to 10 features, in layers that are none of these wide."""
        heads, size = self.randint(1, 4), self.of(4, 6, 8, 10) if even else self.of(4, 5, 6, 7, 8, 10)
        return dict(hidden_size=heads * size, num_attention_heads=heads, num_hidden_layers=self.randint(1, 3))

    def text(self, even: bool = False) -> dict:
        """What most encoders have."""
        vocabulary = self.randint(53, 71)
        return dict(
            self.width(even),
            vocab_size=vocabulary,
            intermediate_size=self.randint(11, 37),
            max_position_embeddings=self.randint(18, 40),
            hidden_act=self.activation(),
            layer_norm_eps=self.choice(EPS),
            tie_word_embeddings=self.maybe(),
            pad_token_id=self.of(0, 1, 1, 3, vocabulary - 1, None),
            num_labels=self.randint(1, 5),
            bos_token_id=5,
            eos_token_id=6,
        )

    def bert(self, even: bool = False) -> dict:
        """What BERT and its nearest relatives have."""
        return dict(self.text(even), type_vocab_size=self.randint(1, 4))

    def rope(self, size: int, longest: int) -> dict | None:
        """Parameters of rotary embedding, for heads of some size."""
        kind = self.of("absent", "default", "default", "linear", "dynamic", "yarn", "llama3", "longrope")
        if kind == "absent":
            return None
        rope = dict(rope_type=kind, rope_theta=self.of(100.0, 10_000.0, 160_000.0))
        if kind in ("linear", "dynamic", "yarn", "llama3"):
            rope["factor"] = self.of(1.5, 2.0, 8.0)
        if kind == "dynamic" and size == 2:
            rope["factor"] = 1.0
        if kind in ("yarn", "llama3", "longrope"):
            rope["original_max_position_embeddings"] = longest // 2
        if kind == "yarn" and self.maybe():
            rope |= dict(beta_fast=self.of(16, 32), beta_slow=self.of(1, 2), attention_factor=self.of(1.1, 0.9))
        if kind == "llama3":
            rope |= dict(low_freq_factor=1.0, high_freq_factor=self.of(2.0, 4.0))
        if kind == "longrope":
            each = lambda: [self.of(1.0, 1.5, 3.0) for _ in range(size // 2)]
            rope |= dict(short_factor=each(), long_factor=each())
        if self.random() < 0.2 and kind == "default":
            rope["partial_rotary_factor"] = 0.5
        return rope

    def roped(self) -> dict:
        """What BERT with rotary embedding has."""
        config = self.bert(even=True)
        size = config["hidden_size"] // config["num_attention_heads"]
        return config | dict(rope_parameters=self.rope(size, config["max_position_embeddings"]))


def albert(d: Draw) -> dict:
    config = d.bert()
    groups = d.randint(1, config["num_hidden_layers"])
    return config | dict(embedding_size=d.randint(5, 23), num_hidden_groups=groups, inner_group_num=d.randint(1, 3))


def convbert(d: Draw) -> dict:
    config, groups = d.bert(even=True), d.of(1, 1, 2)
    return config | dict(
        embedding_size=d.of(config["hidden_size"], d.randint(5, 23)),
        head_ratio=d.of(1, 2, 2, 3, 9),
        conv_kernel_size=d.of(1, 3, 5, 9, 4),
        num_groups=groups,
        intermediate_size=groups * d.randint(11, 19),
    )


def deberta(d: Draw) -> dict:
    config = d.text()
    kinds = d.of(["c2p"], ["p2c"], ["c2p", "p2c"], ["p2c", "c2p"], [], "c2p|p2c", "p2c", None)
    return config | dict(
        type_vocab_size=d.of(0, 0, 1, 3),
        relative_attention=d.of(True, True, False),
        position_biased_input=d.maybe(),
        pos_att_type=kinds,
        max_relative_positions=d.of(-1, -1, 0, 3, 7, 64),
        legacy=d.maybe(),
        pooler_hidden_act=d.activation(),
        pooler_dropout=0.1,
    ) | d.of({}, dict(embedding_size=d.randint(5, 23)), dict(embedding_size=config["hidden_size"]))  # fmt: skip


def deberta_v2(d: Draw) -> dict:
    config = deberta(d)
    config |= d.of({}, dict(position_buckets=d.of(-1, 0, 1, 2, 4, 5, 8, 16)))
    config |= d.of({}, dict(norm_rel_ebd=d.of("none", "layer_norm", "layer_norm|other", "LAYER_NORM")))
    config |= d.of({}, dict(share_att_key=d.maybe()))
    groups = d.of(1, config["num_attention_heads"])
    config |= d.of({}, {}, dict(conv_kernel_size=d.of(0, 1, 3, 5), conv_groups=groups, conv_act=d.activation()))
    if d.random() < 0.1:
        config["attention_head_size"] = d.of(config["hidden_size"] // config["num_attention_heads"], 4)
    return config


def distilbert(d: Draw) -> dict:
    text = d.text()
    renamed = dict(
        hidden_size="dim", num_attention_heads="n_heads", num_hidden_layers="n_layers", intermediate_size="hidden_dim",
        hidden_act="activation",
    )  # fmt: skip
    config = {renamed.get(key, key): value for key, value in text.items() if key != "layer_norm_eps"}
    return config | dict(sinusoidal_pos_embds=d.maybe())


def electra(d: Draw) -> dict:
    config = d.bert()
    return config | dict(embedding_size=d.of(config["hidden_size"], d.randint(5, 23)))


def ernie(d: Draw) -> dict:
    return d.bert() | dict(use_task_id=d.maybe(), task_type_vocab_size=d.randint(1, 4))


def esm(d: Draw) -> dict:
    config = d.text(even=True)
    return config | dict(
        mask_token_id=4,
        pad_token_id=d.of(0, 1, 1, 3),
        position_embedding_type=d.of("rotary", "rotary", "absolute"),
        emb_layer_norm_before=d.of(True, False, None),
        token_dropout=d.maybe(),
        rope_theta=d.of(10_000.0, 100.0),
    )


def eurobert(d: Draw) -> dict:
    config = d.text(even=True)
    config["rms_norm_eps"] = config.pop("layer_norm_eps")
    heads = config["num_attention_heads"]
    size = d.of(config["hidden_size"] // heads, 4, 12)
    return config | dict(
        num_key_value_heads=d.choice([n for n in range(1, heads + 1) if heads % n == 0]),
        head_dim=size,
        attention_bias=d.maybe(),
        mlp_bias=d.maybe(),
        classifier_pooling=d.of("bos", "mean", "late"),
        rope_parameters=d.rope(size, config["max_position_embeddings"]),
        pretraining_tp=d.of(1, 2),
    )


def gte(d: Draw) -> dict:
    return d.roped() | dict(type_vocab_size=d.of(0, 1, 1, 2))


def jina(d: Draw) -> dict:
    return d.roped()


def layoutlm(d: Draw) -> dict:
    return d.bert() | dict(max_2d_position_embeddings=d.randint(24, 60))


def mobilebert(d: Draw) -> dict:
    config, bottleneck = d.bert(), d.of(True, True, False)
    heads = config["num_attention_heads"]
    hidden = config["hidden_size"]
    return config | dict(
        embedding_size=d.of(hidden, d.randint(2, hidden)),
        trigram_input=d.maybe(),
        use_bottleneck=bottleneck,
        intra_bottleneck_size=d.of(hidden, heads * d.randint(2, 7)),
        use_bottleneck_attention=d.of(True, False, False),
        key_query_shared_bottleneck=d.of(True, True, False),
        num_feedforward_networks=d.randint(1, 4),
        normalization_type=d.of("no_norm", "layer_norm"),
        classifier_activation=d.of(True, True, False),
    )


def modernbert(d: Draw) -> dict:
    config = d.text(even=True)
    config["norm_eps"] = config.pop("layer_norm_eps")
    config["hidden_activation"] = config.pop("hidden_act")
    layers, longest = config["num_hidden_layers"], config["max_position_embeddings"]
    size = config["hidden_size"] // config["num_attention_heads"]
    kinds = ("full_attention", "sliding_attention")
    config |= d.of(
        {}, dict(global_attn_every_n_layers=d.randint(1, 3)), dict(layer_types=[d.choice(kinds) for _ in range(layers)])
    )
    rope = {kind: d.rope(size, longest) or dict(rope_type="default") for kind in kinds}
    config |= d.of({}, dict(rope_parameters=rope), dict(global_rope_theta=500.0, local_rope_theta=50.0))
    return config | dict(
        local_attention=d.of(1, 2, 3, 4, 7, 10, 128),
        norm_bias=d.maybe(),
        attention_bias=d.maybe(),
        mlp_bias=d.maybe(),
        decoder_bias=d.maybe(),
        classifier_pooling=d.of("cls", "mean"),
        classifier_bias=d.maybe(),
        classifier_activation=d.activation(),
        deterministic_flash_attn=d.maybe(),
        sparse_prediction=d.maybe(),
        cls_token_id=5,
        sep_token_id=6,
    )


def mpnet(d: Draw) -> dict:
    return d.text() | dict(relative_attention_num_buckets=d.of(32, 32, 40, 16))


def nomic(d: Draw) -> dict:
    config = d.roped()
    size = d.of(config["hidden_size"] // config["num_attention_heads"], 4, 12)
    rope = d.rope(size, config["max_position_embeddings"])
    return config | dict(pad_token_id=d.of(0, 1, 9), head_dim=size, rope_parameters=rope)


def nystromformer(d: Draw) -> dict:
    landmarks = d.of(4, 8, 64)
    return d.bert() | dict(
        num_landmarks=landmarks, segment_means_seq_len=landmarks, conv_kernel_size=d.of(1, 3, 5, 65, 4)
    )  # fmt: skip


def rembert(d: Draw) -> dict:
    return d.bert() | dict(input_embedding_size=d.randint(5, 23), output_embedding_size=d.randint(5, 31))


def roformer(d: Draw) -> dict:
    config = d.bert(even=True)
    sizes = d.of(None, config["hidden_size"], d.randint(5, 23))
    return config | dict(embedding_size=sizes, rotary_value=d.maybe())


def squeezebert(d: Draw) -> dict:
    heads = d.of(2, 4)
    hidden, inner = heads * d.of(2, 4, 6), 4 * d.randint(3, 9)
    groups = ("q_groups", "k_groups", "v_groups", "post_attention_groups", "intermediate_groups", "output_groups")
    return d.bert() | dict(
        {name: d.of(1, 2, 4) for name in groups},
        hidden_size=hidden, num_attention_heads=heads, intermediate_size=inner, embedding_size=hidden,
    )  # fmt: skip


def bert(d: Draw) -> dict:
    return d.bert()


def roberta(d: Draw) -> dict:
    """Positions begin after the padding id."""
    return d.bert() | dict(pad_token_id=d.of(0, 1, 1, 5))


def t5(d: Draw) -> dict:
    """Encoder and decoder."""
    forms = ("relu", "gelu", "silu", "gated-gelu", "gated-silu", "gated-relu")
    return dict(
        vocab_size=d.randint(53, 71), d_model=d.randint(9, 33), d_kv=d.of(4, 5, 8), d_ff=d.randint(11, 37),
        num_layers=d.randint(1, 3), num_decoder_layers=d.of(None, 1, 2), num_heads=d.randint(1, 4),
        relative_attention_num_buckets=d.of(8, 16, 32), relative_attention_max_distance=d.of(20, 64, 128),
        layer_norm_epsilon=d.choice(EPS), feed_forward_proj=d.choice(forms), tie_word_embeddings=d.maybe(),
        pad_token_id=d.of(0, 0, 3), eos_token_id=6, decoder_start_token_id=d.of(0, 5), num_labels=d.randint(1, 5),
    )  # fmt: skip


def longt5(d: Draw) -> dict:
    return t5(d) | dict(encoder_attention_type="local", local_radius=d.of(1, 2, 4, 7, 127))


def bart(d: Draw) -> dict:
    """Encoder and decoder."""
    heads = [d.randint(1, 4), d.randint(1, 4)]
    return dict(
        vocab_size=d.randint(53, 71), d_model=heads[0] * heads[1] * d.of(4, 5, 6),
        encoder_attention_heads=heads[0], decoder_attention_heads=heads[1], encoder_layers=d.randint(1, 3),
        decoder_layers=d.randint(1, 3), encoder_ffn_dim=d.randint(11, 37), decoder_ffn_dim=d.randint(11, 37),
        max_position_embeddings=d.randint(18, 40), activation_function=d.of("gelu", "relu", "gelu_new", "silu"),
        scale_embedding=d.maybe(), tie_word_embeddings=True, pad_token_id=d.of(0, 1, 3), bos_token_id=5,
        eos_token_id=6, decoder_start_token_id=d.of(2, 6), forced_eos_token_id=6, num_labels=d.randint(1, 5),
    )  # fmt: skip


# Each type, and what draws a configuration of it.
TYPES = {
    "albert": albert,
    "bart": bart,
    "bert": bert,
    "camembert": roberta,
    "convbert": convbert,
    "data2vec-text": roberta,
    "deberta": deberta,
    "deberta-v2": deberta_v2,
    "distilbert": distilbert,
    "electra": electra,
    "ernie": ernie,
    "esm": esm,
    "eurobert": eurobert,
    "gte": gte,
    "jina_embeddings_v3": jina,
    "layoutlm": layoutlm,
    "longt5": longt5,
    "megatron-bert": bert,
    "mobilebert": mobilebert,
    "modernbert": modernbert,
    "mpnet": mpnet,
    "mt5": t5,
    "nomic_bert": nomic,
    "nystromformer": nystromformer,
    "rembert": rembert,
    "roberta": roberta,
    "roformer": roformer,
    "squeezebert": squeezebert,
    "t5": t5,
    "umt5": t5,
    "xlm-roberta": roberta,
    "xlm-roberta-xl": roberta,
}
