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


# Each type, and what draws a configuration of it.
TYPES = {
    "falcon_mamba": falcon_mamba,
}
