"""The models that check_exporters.py has exported: transformers configurations, tiny, with seeded random weights."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Model:
    """A configuration, the class of model that is made of it, and what the exported graph takes."""

    name: str
    # What transformers calls the architecture: `model_type` in config.json.
    type: str
    # The ending of the class: AutoModel, AutoModelForCausalLM ...
    head: str
    # What the model takes: a key of FORMS in export_models.py.
    form: str
    config: dict
    # Implementations in transformers to set where torch cannot export its default: part -> name.
    torch: dict = field(default_factory=dict)


# Optimum's name for what each class of model is for; decoders are exported with their cache.
TASKS = {
    "": "feature-extraction",
    "ForMaskedLM": "fill-mask",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForCausalLM": "text-generation-with-past",
    "ForSeq2SeqLM": "text2text-generation-with-past",
    "ForSpeechSeq2Seq": "automatic-speech-recognition-with-past",
    "ForImageClassification": "image-classification",
    "ForSemanticSegmentation": "semantic-segmentation",
    "ForZeroShotImageClassification": "zero-shot-image-classification",
}

IDS = dict(vocab_size=99, pad_token_id=0, bos_token_id=1, eos_token_id=2)
WIDTH = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
BERT = dict(IDS, **WIDTH, intermediate_size=48, max_position_embeddings=64)
# torch.export knows no grouped products of experts, and cannot join the heads of these attentions.
BATCHED = {"experts": "batched_mm"}
EAGER = {"attn": "eager"}
# Two heads of keys for four of queries.
LLAMA = dict(BERT, num_key_value_heads=2)
EXPERTS = dict(LLAMA, moe_intermediate_size=24, num_experts_per_tok=2)
BART = dict(
    IDS, d_model=32, max_position_embeddings=64, decoder_start_token_id=2, forced_eos_token_id=None,
    encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=48,
    decoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=48,
)  # fmt: skip
VIT = dict(WIDTH, intermediate_size=48, image_size=32, patch_size=8, num_labels=5)
SWIN = dict(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=5)
CLIP_TEXT = dict(BERT, projection_dim=16)
CLIP_VISION = dict(WIDTH, intermediate_size=48, image_size=32, patch_size=8, projection_dim=16)


def encoder(name: str, head: str = "", type: str | None = None, **config) -> Model:
    return Model(name, type or name, head, "tokens", dict(BERT, **config))


def decoder(name: str, base: dict = LLAMA, type: str | None = None, torch: dict = {}, **config) -> Model:
    return Model(name, type or name, "ForCausalLM", "cached", dict(base, **config), torch)


def image(name: str, base: dict = VIT, head: str = "ForImageClassification", torch: dict = {}, **config) -> Model:
    return Model(name, f"{name}_model".replace("-", "_") if not head else name, head, "image", dict(base, **config), torch)


MODELS = [
    # Encoders of text.
    encoder("bert", "ForMaskedLM"),
    encoder("roberta", "ForMaskedLM", pad_token_id=1),
    encoder("xlm-roberta", "ForTokenClassification", pad_token_id=1, num_labels=3),
    encoder("camembert", "ForQuestionAnswering", pad_token_id=1),
    encoder("distilbert", "ForSequenceClassification", n_layers=2, n_heads=4, dim=32, hidden_dim=48),
    encoder("albert", embedding_size=16),
    encoder("electra", "ForSequenceClassification", embedding_size=16),
    encoder("mpnet", pad_token_id=1),
    encoder("deberta", relative_attention=True, max_relative_positions=-1, pos_att_type=["c2p", "p2c"]),
    encoder(
        "deberta-v2", "ForSequenceClassification", relative_attention=True, position_buckets=8,
        pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", share_att_key=True,
    ),  # fmt: skip
    encoder(
        "modernbert", "ForMaskedLM", global_attn_every_n_layers=2, local_attention=4,
        cls_token_id=1, sep_token_id=2, reference_compile=False,
    ),  # fmt: skip
    encoder("roformer", "ForMaskedLM", embedding_size=32),
    encoder("nystromformer", num_landmarks=64, segment_means_seq_len=64, conv_kernel_size=3),
    encoder("mobilebert", embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16),
    encoder("rembert", input_embedding_size=16, output_embedding_size=16),
    encoder("squeezebert", embedding_size=32),
    encoder("esm", pad_token_id=1, mask_token_id=4, position_embedding_type="rotary", emb_layer_norm_before=True),
    # Decoders of text.
    decoder("gpt2", dict(IDS), n_embd=32, n_layer=2, n_head=4, n_positions=64),
    decoder("gpt_neo", dict(IDS), hidden_size=32, num_layers=2, num_heads=4, intermediate_size=48,
            attention_types=[[["global", "local"], 1]], window_size=4, max_position_embeddings=64),  # fmt: skip
    decoder("gptj", dict(IDS), n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4),
    decoder("gpt_neox", BERT, rotary_pct=0.25),
    decoder("gpt_bigcode", dict(IDS), n_embd=32, n_layer=2, n_head=4, n_positions=64, multi_query=True),
    decoder("codegen", dict(IDS), n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4),
    decoder("opt", BERT, ffn_dim=48, word_embed_proj_dim=32),
    decoder("bloom", dict(IDS), hidden_size=32, n_layer=2, n_head=4),
    decoder("mpt", dict(IDS), d_model=32, n_layers=2, n_heads=4, max_seq_len=64, expansion_ratio=2),
    decoder("falcon", dict(IDS, **WIDTH), alibi=False, multi_query=True, new_decoder_architecture=False, bias=False),
    decoder("llama"),
    decoder("llama3-rope", type="llama", max_position_embeddings=128, rope_scaling=dict(
        rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=32), rope_theta=10000.0),  # fmt: skip
    decoder("mistral", sliding_window=6),
    decoder("mixtral", torch=BATCHED, num_local_experts=4, num_experts_per_tok=2),
    decoder("qwen2"),
    decoder("qwen3", head_dim=16),
    decoder("qwen3_moe", EXPERTS, torch=BATCHED, head_dim=16, num_experts=4),
    decoder("phi", BERT, partial_rotary_factor=0.5),
    decoder("phi3", original_max_position_embeddings=64, sliding_window=None),
    decoder("gemma", head_dim=16),
    decoder("gemma2", head_dim=16, query_pre_attn_scalar=16, sliding_window=6),
    decoder("gemma3_text", head_dim=16, query_pre_attn_scalar=16, sliding_window=6,
            layer_types=["sliding_attention", "full_attention"]),  # fmt: skip
    decoder("glm", head_dim=8),
    decoder("glm4", head_dim=8),
    decoder("olmo"),
    decoder("olmo2"),
    decoder("starcoder2", sliding_window=6),
    decoder("stablelm", partial_rotary_factor=0.25),
    decoder("granite", attention_multiplier=0.25, residual_multiplier=0.5, logits_scaling=2.0),
    decoder("cohere", logit_scale=0.5),
    decoder("smollm3", no_rope_layers=[1, 0]),
    decoder("nemotron", partial_rotary_factor=0.5),
    decoder("gpt_oss", EXPERTS, torch=BATCHED, head_dim=8, num_local_experts=4, sliding_window=6, intermediate_size=24,
            layer_types=["sliding_attention", "full_attention"], rope_scaling=None),  # fmt: skip
    # Encoder-decoders.
    Model("t5", "t5", "ForSeq2SeqLM", "pair", dict(
        IDS, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
        decoder_start_token_id=0), EAGER),  # fmt: skip
    Model("mt5", "mt5", "ForSeq2SeqLM", "pair", dict(
        IDS, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, relative_attention_num_buckets=8,
        feed_forward_proj="gated-gelu", tie_word_embeddings=False, decoder_start_token_id=0), EAGER),  # fmt: skip
    Model("bart", "bart", "ForSeq2SeqLM", "pair", dict(BART, pad_token_id=1, bos_token_id=0)),
    Model("mbart", "mbart", "ForSeq2SeqLM", "pair", dict(BART, pad_token_id=1, bos_token_id=0)),
    Model("marian", "marian", "ForSeq2SeqLM", "pair", dict(BART, decoder_vocab_size=99)),
    Model("pegasus", "pegasus", "ForSeq2SeqLM", "pair", dict(BART)),
    Model("m2m_100", "m2m_100", "ForSeq2SeqLM", "pair", dict(BART, pad_token_id=1, bos_token_id=0)),
    # Optimum exports it for 3000 frames only, which the encoder halves.
    Model("whisper", "whisper", "ForSpeechSeq2Seq", "speech", dict(
        BART, num_mel_bins=16, max_source_positions=1500, max_target_positions=32, suppress_tokens=None,
        begin_suppress_tokens=None)),  # fmt: skip
    # Vision.
    image("vit"),
    image("deit", architectures=["DeiTForImageClassification"]),
    image("beit", torch=EAGER, use_relative_position_bias=True, use_mask_token=False),
    image("dinov2"),
    image("swin", SWIN, torch=EAGER),
    image("swinv2", SWIN),
    image("convnext", dict(num_labels=5, image_size=32), hidden_sizes=[16, 24, 32, 48], depths=[1, 1, 1, 1]),
    image("resnet", dict(num_labels=5), embedding_size=16, hidden_sizes=[16, 24], depths=[1, 1], layer_type="basic"),
    image("segformer", dict(num_labels=5), "ForSemanticSegmentation", hidden_sizes=[16, 32], depths=[1, 1],
          num_encoder_blocks=2, num_attention_heads=[1, 2], sr_ratios=[2, 1], patch_sizes=[3, 3], strides=[2, 2],
          mlp_ratios=[2, 2], decoder_hidden_size=16),  # fmt: skip
    image("clip-vision", CLIP_VISION, ""),
    image("siglip-vision", CLIP_VISION, ""),
    # Vision and text.
    Model("clip-text", "clip_text_model", "", "tokens", CLIP_TEXT),
    Model("siglip", "siglip", "ForZeroShotImageClassification", "image-ids", dict(
        text_config=dict(CLIP_TEXT, projection_size=32), vision_config=CLIP_VISION)),  # fmt: skip
    Model("clip", "clip", "ForZeroShotImageClassification", "image-text", dict(
        text_config=CLIP_TEXT, vision_config=CLIP_VISION, projection_dim=16)),  # fmt: skip
]
