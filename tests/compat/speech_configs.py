"""Random configurations of models of recordings, for check_speech.py."""

from encoder_configs import Draw as TextDraw


class Draw(TextDraw):
    """Random choices that configurations are made of."""

    def front(self) -> dict:
        """Convolutions of a waveform."""
        count = self.randint(1, 4)
        strides = [self.randint(1, 5) for _ in range(count)]
        return dict(
            conv_dim=[self.randint(3, 13) for _ in range(count)], conv_stride=strides,
            conv_kernel=[stride + self.randint(0, 4) for stride in strides], conv_bias=self.maybe(),
            feat_extract_activation=self.activation(),
        )  # fmt: skip

    def transformer(self) -> dict:
        """What all encoders of waveforms have, with groups of channels that divide them."""
        groups, heads = self.of(1, 2, 3), self.randint(1, 4)
        return self.front() | dict(
            hidden_size=groups * heads * self.of(2, 4, 6), num_attention_heads=heads, num_hidden_layers=self.randint(1, 3),
            intermediate_size=self.randint(11, 37), hidden_act=self.activation(), layer_norm_eps=self.of(1e-6, 1e-5, 1e-3),
            num_conv_pos_embeddings=self.randint(1, 9), num_conv_pos_embedding_groups=groups, vocab_size=self.randint(5, 40),
            classifier_proj_size=self.randint(3, 20), use_weighted_layer_sum=self.maybe(), num_labels=self.randint(1, 5),
            mask_time_prob=self.of(0.0, 0.05),
        )  # fmt: skip

    def norms(self) -> dict:
        """Where norms stand."""
        return dict(feat_extract_norm=self.of("group", "layer"), do_stable_layer_norm=self.maybe())

    def adapter(self, config: dict) -> dict:
        """Convolutions after the transformer, in a third of the configurations."""
        if self.randint(0, 2):
            return {}
        return dict(
            add_adapter=True, adapter_kernel_size=self.randint(2, 5), adapter_stride=self.randint(1, 3),
            num_adapter_layers=self.randint(1, 3),
            output_hidden_size=config["hidden_size"] if self.maybe() else self.randint(3, 20),
        )  # fmt: skip

    def voices(self) -> dict:
        """The head of vectors of voices."""
        count = self.randint(1, 4)
        return dict(
            tdnn_dim=[self.randint(3, 12) for _ in range(count)], tdnn_kernel=[self.randint(1, 5) for _ in range(count)],
            tdnn_dilation=[self.randint(1, 3) for _ in range(count)], xvector_output_dim=self.randint(3, 12),
        )  # fmt: skip


def wav2vec2(d: Draw) -> dict:
    config = d.transformer() | d.norms()
    return config | d.adapter(config) | d.voices() | dict(adapter_attn_dim=d.of(None, None, 5))


def hubert(d: Draw) -> dict:
    return d.transformer() | d.norms() | dict(feat_proj_layer_norm=d.maybe(), conv_pos_batch_norm=d.maybe())


def unispeech(d: Draw) -> dict:
    return d.transformer() | d.norms()


def unispeech_sat(d: Draw) -> dict:
    return d.transformer() | d.norms() | d.voices()


def wavlm(d: Draw) -> dict:
    config = d.transformer() | d.norms()
    buckets = d.of(4, 7, 16, 320)
    return config | d.adapter(config) | d.voices() | dict(num_buckets=buckets, max_bucket_distance=buckets + d.randint(1, 500))


def data2vec(d: Draw) -> dict:
    config = d.transformer()
    config |= dict(num_conv_pos_embeddings=d.randint(1, 3), conv_pos_kernel_size=d.randint(1, 9))
    return config | d.adapter(config) | d.voices()


def conformer(d: Draw) -> dict:
    config = wav2vec2(d) | dict(
        position_embeddings_type=d.of("relative", "rotary", None), rotary_embedding_base=d.of(100, 10000),
        max_source_positions=5000, conv_depthwise_kernel_size=d.of(1, 3, 5, 31),
    )  # fmt: skip
    for key in ("adapter_attn_dim", "do_stable_layer_norm"):
        del config[key]
    return config


def wav2vec2_bert(d: Draw) -> dict:
    heads = d.randint(1, 3)
    config = dict(
        hidden_size=heads * d.of(4, 6), num_attention_heads=heads, num_hidden_layers=d.randint(1, 3), hidden_act=d.activation(),
        intermediate_size=d.randint(11, 37), layer_norm_eps=d.of(1e-6, 1e-5, 1e-3), vocab_size=d.randint(5, 40),
        feature_projection_input_dim=d.randint(3, 20), classifier_proj_size=d.randint(3, 20), num_labels=d.randint(1, 5),
        use_weighted_layer_sum=d.maybe(), mask_time_prob=d.of(0.0, 0.05), rotary_embedding_base=d.of(100, 10000),
        position_embeddings_type=d.of("relative_key", "relative_key", "relative", "rotary", None), conv_depthwise_kernel_size=d.of(1, 3, 5, 31),
        left_max_position_embeddings=d.of(1, 5, 64), right_max_position_embeddings=d.of(1, 3, 8),
    )  # fmt: skip
    adapter = d.adapter(config)
    if adapter:
        adapter |= dict(
            output_hidden_size=heads * d.of(4, 5, 6), use_intermediate_ffn_before_adapter=d.maybe(), adapter_act=d.activation()
        )  # fmt: skip
    return config | adapter | d.voices()


def parakeet_encoder(d: Draw) -> dict:
    heads, stride, kernel = d.randint(1, 3), 2, d.of(3, 3, 5)
    factor = d.of(2, 4, 8, 9)
    return dict(
        hidden_size=heads * d.of(4, 6), num_attention_heads=heads, num_hidden_layers=d.randint(1, 3), hidden_act=d.activation(),
        intermediate_size=d.randint(11, 37), attention_bias=d.maybe(), convolution_bias=d.maybe(), conv_kernel_size=d.of(1, 3, 9),
        subsampling_factor=factor, subsampling_conv_channels=d.randint(2, 7), num_mel_bins=8 * d.randint(1, 4),
        subsampling_conv_kernel_size=kernel, subsampling_conv_stride=stride, scale_input=d.maybe(),
    )  # fmt: skip


def parakeet_ctc(d: Draw) -> dict:
    vocabulary = d.randint(5, 40)
    return dict(encoder_config=parakeet_encoder(d), vocab_size=vocabulary, pad_token_id=vocabulary - 1)


def clap_text(d: Draw) -> dict:
    heads, vocabulary, pad = d.randint(1, 3), d.randint(12, 40), d.randint(0, 3)
    return dict(
        vocab_size=vocabulary, hidden_size=heads * d.of(4, 6), num_attention_heads=heads, num_hidden_layers=d.randint(1, 3),
        intermediate_size=d.randint(11, 37), hidden_act=d.activation(), layer_norm_eps=d.of(1e-12, 1e-6, 1e-3),
        max_position_embeddings=pad + 1 + d.randint(5, 20), type_vocab_size=d.randint(1, 2), pad_token_id=pad,
        projection_dim=d.randint(3, 12), projection_hidden_act=d.of("relu", "gelu"),
    )  # fmt: skip


def clap_audio(d: Draw) -> dict:
    # Grids that are halved at each stage, of tokens that windows divide or not.
    stages = d.randint(1, 3)
    folds, window = d.of(1, 2, 4), d.of(2, 3, 4)
    last = folds * d.of(1, 2) if folds > 1 else d.of(2, 3, 4)
    stride = d.of(1, 2)
    while last < window:
        last *= 2
    side = stride * last << stages - 1
    heads = [d.of(1, 2, 3) for _ in range(stages)]
    embedded = 6 * d.of(1, 2)
    fused = d.maybe()
    return dict(
        spec_size=side, num_mel_bins=side // folds, window_size=window, patch_size=stride + 2 * d.of(0, 1), patch_stride=d.of(stride, [stride, stride]),
        depths=[d.randint(1, 2) for _ in range(stages)], num_attention_heads=heads, patch_embeds_hidden_size=embedded,
        hidden_size=embedded << stages - 1, enable_fusion=fused, fusion_type=d.of("aff_2d", None), hidden_act=d.activation(),
        enable_patch_layer_norm=d.maybe(), qkv_bias=d.maybe(), mlp_ratio=d.of(1.5, 4.0), aff_block_r=d.of(1, 2, 4),
        layer_norm_eps=d.of(1e-12, 1e-6, 1e-3), projection_dim=d.randint(3, 12), projection_hidden_act=d.of("relu", "gelu"),
    )  # fmt: skip


def clap(d: Draw) -> dict:
    return dict(
        text_config=clap_text(d), audio_config=clap_audio(d), projection_dim=d.randint(3, 12), projection_hidden_act=d.of("relu", "gelu"),
    )  # fmt: skip


def ast(d: Draw) -> dict:
    heads, patch = d.randint(1, 4), d.randint(1, 5)
    return dict(
        hidden_size=heads * d.of(4, 5, 6), num_attention_heads=heads, num_hidden_layers=d.randint(1, 3),
        intermediate_size=d.randint(11, 37), hidden_act=d.activation(), layer_norm_eps=d.of(1e-12, 1e-6, 1e-3),
        patch_size=patch, qkv_bias=d.maybe(), frequency_stride=d.randint(1, 6), time_stride=d.randint(1, 6),
        max_length=patch + d.randint(0, 20), num_mel_bins=patch + d.randint(0, 20), num_labels=d.randint(1, 5),
    )  # fmt: skip


TYPES = {
    "audio-spectrogram-transformer": ast,
    "clap": clap,
    "clap_audio_model": clap_audio,
    "clap_text_model": clap_text,
    "data2vec-audio": data2vec,
    "hubert": hubert,
    "parakeet_ctc": parakeet_ctc,
    "parakeet_encoder": parakeet_encoder,
    "unispeech": unispeech,
    "unispeech-sat": unispeech_sat,
    "wav2vec2": wav2vec2,
    "wav2vec2-bert": wav2vec2_bert,
    "wav2vec2-conformer": conformer,
    "wavlm": wavlm,
}
