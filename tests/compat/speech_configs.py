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


def sew(d: Draw) -> dict:
    config = d.transformer() | dict(feat_extract_norm=d.of("group", "layer"), squeeze_factor=d.randint(1, 3))
    return config


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
    "data2vec-audio": data2vec,
    "hubert": hubert,
    "unispeech": unispeech,
    "unispeech-sat": unispeech_sat,
    "wav2vec2": wav2vec2,
    "wav2vec2-conformer": conformer,
    "wavlm": wavlm,
}
