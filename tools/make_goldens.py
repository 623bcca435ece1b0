#!/usr/bin/env python3
"""Writes tiny checkpoints with random weights, and what transformers computes for them in float64.

    make_goldens.py OUT [NAME...]

OUT/NAME gets config.json, generation_config.json, model.safetensors and io.safetensors, as
fixtures/goldens/README.md describes. Needs torch, transformers==5.23.0 (5.24.0 for STATES, IMAGES, SHAPES, POINTS, SPEECH, RECORDINGS, SEEING and llama4) and safetensors. The same
versions give the same bytes: seeds are fixed.

Without names it writes all but those of POINTS and SEEING. To add a case, add a line to DECODERS, STATES, SEQ2SEQ, LABELS, IMAGES, SHAPES, POINTS,
SPEECH, RECORDINGS or SEEING.
"""

import argparse
import copy
import shutil
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file
from transformers import DynamicCache

TINY = {
    "vocab_size": 139, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
}

NEOX = {"hidden_size": 48, "num_attention_heads": 3}
# Its feed-forward is as wide as `ffn_dim` says.
OPT = {"hidden_size": 48, "intermediate_size": None, "ffn_dim": 96, "bos_token_id": 2, "pad_token_id": 1}

EXPERTS = {"hidden_size": 32, "intermediate_size": 40}
# The experts of DeepSeek-V3.
GROUPED = {
    "n_routed_experts": 8, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3, "n_shared_experts": 1,
    "moe_intermediate_size": 16, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
}

# name -> (class of the model, keys of the configuration that differ from TINY)
DECODERS = {
    "gemma": ("GemmaForCausalLM", {"hidden_size": 48, "num_key_value_heads": 1, "head_dim": 16}),
    # In bfloat16 the factor of the embeddings is rounded to it.
    "gemma2": ("Gemma2ForCausalLM", {
        "hidden_size": 48, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 4, "query_pre_attn_scalar": 24,
        "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0, "dtype": "bfloat16",
    }),
    # Positions run beyond the original length of 8, in one row of the two, so that scaling matters.
    "llama-dynamic": ("LlamaForCausalLM", {
        "hidden_size": 48, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 8,
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 8.0},
    }),
    "llama-yarn": ("LlamaForCausalLM", {
        "hidden_size": 48, "num_key_value_heads": 2, "head_dim": 16,
        "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 8,
            "beta_fast": 1.0, "beta_slow": 0.05,
        },
    }),
    "phi3-longrope": ("Phi3ForCausalLM", {
        "hidden_size": 48, "num_key_value_heads": 2, "original_max_position_embeddings": 8,
        "rope_parameters": {
            "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 1.0,
            "short_factor": [1.0, 1.0, 1.1, 1.2, 1.3, 1.5], "long_factor": [1.0, 1.5, 2.5, 4.0, 6.0, 8.0],
        },
    }),
    "qwen3": ("Qwen3ForCausalLM", {"hidden_size": 48, "num_key_value_heads": 2, "head_dim": 16}),
    "gpt-neox": ("GPTNeoXForCausalLM", NEOX | {"rotary_pct": 0.25}),
    "gpt-neox-sequential": ("GPTNeoXForCausalLM", NEOX | {
        "rotary_pct": 1.0, "use_parallel_residual": False, "attention_bias": False, "tie_word_embeddings": True,
        "hidden_act": "gelu_new",
    }),
    "glm4-moe": ("Glm4MoeForCausalLM", EXPERTS | GROUPED | {
        "num_key_value_heads": 2, "head_dim": 8, "use_qk_norm": True, "attention_bias": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    }),
    "dots1": ("Dots1ForCausalLM", EXPERTS | GROUPED | {"num_key_value_heads": 2, "sliding_window": 4, "max_window_layers": 1}),
    "ernie4-5-moe": ("Ernie4_5_MoeForCausalLM", EXPERTS | {
        "num_key_value_heads": 2, "moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 2, "moe_intermediate_size": 16,
        "moe_layer_start_index": 1, "use_bias": True, "tie_word_embeddings": True,
    }),
    "flex-olmo": ("FlexOlmoForCausalLM", EXPERTS | {"num_experts": 4, "num_experts_per_tok": 3, "norm_topk_prob": True}),
    "hunyuan-moe": ("HunYuanMoEV1ForCausalLM", EXPERTS | {
        "num_key_value_heads": 2, "num_experts": 4, "moe_topk": [1, 2], "head_dim": 8,
        "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "alpha": 100.0, "factor": 1.0},
    }),
    # Of its three layers, the first and the last attend in chunks, and the second is the one with experts.
    "llama4": ("Llama4ForCausalLM", EXPERTS | {
        "num_hidden_layers": 3, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 16, "intermediate_size_mlp": 40,
        "num_local_experts": 4, "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "no_rope_layer_interval": 2,
        "attention_chunk_size": 4, "floor_scale": 3, "attn_scale": 0.3,
    }),
    "opt": ("OPTForCausalLM", OPT),
    "opt-350m-like": ("OPTForCausalLM", OPT | {"do_layer_norm_before": False, "word_embed_proj_dim": 24}),
}

# Sizes of decoders with states of a fixed size, and of their attention.
HYBRID = TINY | {"hidden_size": 32, "intermediate_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
MAMBA = {"vocab_size": 139, "hidden_size": 24, "num_hidden_layers": 2, "conv_kernel": 3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
MIXER = {
    "mamba_n_heads": 8, "mamba_d_head": "auto", "mamba_n_groups": 2, "mamba_d_state": 6, "mamba_d_conv": 3, "mamba_expand": 2,
    "mamba_chunk_size": 4,
}
DELTA = {
    "head_dim": 8, "linear_conv_kernel_dim": 3, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6,
    "linear_value_head_dim": 8, "layer_types": ["linear_attention", "full_attention"],
}

ROUTED = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 20}

# name -> (class of the model, configuration): decoders with states of a fixed size
STATES = {
    "lfm2": ("Lfm2ForCausalLM", HYBRID | {
        "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 4, "conv_bias": True,
        "block_multiple_of": 8,
    }),
    "falcon-mamba": ("FalconMambaForCausalLM", MAMBA | {"state_size": 5, "time_step_rank": 3, "mixer_rms_eps": 1e-4, "use_bias": True}),
    "lfm2-moe": ("Lfm2MoeForCausalLM", HYBRID | {
        "num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 3, "num_dense_layers": 1,
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "routed_scaling_factor": 1.5,
    }),
    "mamba": ("MambaForCausalLM", MAMBA | {"state_size": 5, "time_step_rank": 3}),
    "mamba2": ("Mamba2ForCausalLM", MAMBA | {
        "state_size": 6, "num_heads": 8, "head_dim": 6, "n_groups": 2, "chunk_size": 4, "time_step_limit": (0.0, 0.9),
    }),
    "qwen3-5": ("Qwen3_5ForCausalLM", HYBRID | DELTA),
    "qwen3-5-moe": ("Qwen3_5MoeForCausalLM", {key: value for key, value in (HYBRID | DELTA | ROUTED).items() if key != "intermediate_size"} | {
        "rope_parameters": {
            "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_interleaved": True, "mrope_section": [1, 1, 0],
        },
    }),
    "qwen3-next": ("Qwen3NextForCausalLM", HYBRID | DELTA | ROUTED | {"mlp_only_layers": [1]}),
    "bamba": ("BambaForCausalLM", HYBRID | MIXER | {"attn_layer_indices": [1], "time_step_limit": (0.0, float("inf"))}),
    "falcon-h1": ("FalconH1ForCausalLM", HYBRID | MIXER | {
        "mamba_d_ssm": 48, "num_hidden_layers": 1, "mamba_rms_norm": True, "key_multiplier": 0.5, "ssm_multipliers": [0.5, 1.5, 0.7, 1.2, 0.9],
        "mlp_multipliers": [0.8, 1.3], "attention_in_multiplier": 1.4, "ssm_out_multiplier": 0.7, "lm_head_multiplier": 1.5,
    }),
    "granitemoehybrid": ("GraniteMoeHybridForCausalLM", HYBRID | MIXER | {
        "num_local_experts": 0, "shared_intermediate_size": 40, "layer_types": ["linear_attention", "full_attention"],
        "position_embedding_type": "rope", "embedding_multiplier": 3.0, "residual_multiplier": 0.8, "attention_multiplier": 0.3, "logits_scaling": 0.5,
    }),
    "jamba": ("JambaForCausalLM", HYBRID | {
        "num_experts": 1, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 5, "mamba_d_conv": 3, "mamba_dt_rank": 3,
    }),
    "nemotron-h": ("NemotronHForCausalLM", HYBRID | {
        "num_hidden_layers": None, "layers_block_type": ["mamba", "mlp", "attention"], "head_dim": 8, "mamba_num_heads": 4, "mamba_head_dim": 6,
        "n_groups": 2, "ssm_state_size": 5, "conv_kernel": 3, "chunk_size": 4, "n_routed_experts": 1,
    }),
}

# name -> (class of the model, configuration)
SEQ2SEQ = {
    "t5-gated-untied": ("T5ForConditionalGeneration", {
        "vocab_size": 127, "d_model": 32, "d_kv": 12, "d_ff": 40, "num_layers": 2, "num_heads": 4,
        "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20, "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False, "decoder_start_token_id": 0,
    }),
    "marian": ("MarianMTModel", {
        "vocab_size": 131, "decoder_vocab_size": 131, "d_model": 32, "max_position_embeddings": 64, "scale_embedding": True,
        "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 40,
        "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 40, "activation_function": "swish",
        "pad_token_id": 130, "decoder_start_token_id": 130, "eos_token_id": 0, "forced_eos_token_id": 0,
    }),
}

TINY_T5 = {
    "vocab_size": 131, "d_model": 24, "d_kv": 6, "d_ff": 40, "num_layers": 1, "num_heads": 4, "num_labels": 3,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20, "decoder_start_token_id": 0,
}

SMALL = {
    "vocab_size": 131, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 32, "pad_token_id": 0,
}

# name -> (class of the model, configuration): models that give labels of rows or of tokens
LABELS = {
    "bart-classify": ("BartForSequenceClassification", {
        "vocab_size": 131, "d_model": 24, "max_position_embeddings": 32, "num_labels": 4,
        "encoder_layers": 1, "encoder_attention_heads": 4, "encoder_ffn_dim": 40,
        "decoder_layers": 1, "decoder_attention_heads": 4, "decoder_ffn_dim": 40,
    }),
    "bert-choice": ("BertForMultipleChoice", SMALL),
    "t5-classify": ("T5ForSequenceClassification", TINY_T5),
    "t5-encoder": ("T5EncoderModel", TINY_T5),
    "t5-tokens": ("T5ForTokenClassification", TINY_T5),
    "qwen3-tokens": ("Qwen3ForTokenClassification", SMALL | {"num_key_value_heads": 2, "head_dim": 8, "num_labels": 3}),
}

# How far matrices are drawn from what they start from, where they would give one token again and again.
SPREAD = {
    "whisper": 0.2, "moonshine": 0.2, "clap": 0.2, "parakeet": 0.2, "wav2vec2-bert": 0.2, "blip": 0.2, "idefics3": 0.2, "paligemma": 0.2,
    "depth-anything": 0.18, "siglip2": 0.12, "dpt": 0.25, "vitpose": 0.2, "sam": 0.25, "gemma": 0.3, "gemma2": 0.05, "llama-dynamic": 0.2, "llama-yarn": 0.2, "phi3-longrope": 0.2, "qwen3": 0.2,
    "gpt-neox": 0.2, "gpt-neox-sequential": 0.3, "opt": 0.2, "opt-350m-like": 0.2, "marian": 0.3, "t5-gated-untied": 0.2,
    "glm4-moe": 0.2, "dots1": 0.2, "ernie4-5-moe": 0.2, "llama4": 0.2, "flex-olmo": 0.2, "hunyuan-moe": 0.2, "bart-classify": 0.3, "bert-choice": 0.3,
} | dict.fromkeys(STATES, 0.2) | {"qwen3-5": 0.1, "qwen3-5-moe": 0.1, "qwen3-next": 0.1}

PATCHES = {"hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 3, "image_size": 24, "patch_size": 6}
NECK = {"neck_hidden_sizes": [6, 8, 10], "reassemble_factors": [2, 1, 0.5], "fusion_hidden_size": 8}

# Models of images that give maps of places. name -> (class of the model, keys of the configuration, height and width of images)
IMAGES = {
    # Images of another size than positions are of.
    "depth-anything": ("DepthAnythingForDepthEstimation", NECK | {
        "backbone_config": PATCHES | {"model_type": "dinov2", "mlp_ratio": 2, "out_indices": [1, 2, 3], "reshape_hidden_states": False},
        "patch_size": 6, "reassemble_hidden_size": 24, "head_hidden_size": 5, "depth_estimation_type": "metric", "max_depth": 20,
    }, (18, 32)),
    "dpt": ("DPTForSemanticSegmentation", PATCHES | NECK | {
        "intermediate_size": 40, "backbone_out_indices": [0, 1, 2], "use_batch_norm_in_fusion_residual": True, "num_labels": 4,
    }, (24, 24)),
    "vitpose": ("VitPoseForPoseEstimation", {
        "backbone_config": PATCHES | {"model_type": "vitpose_backbone", "mlp_ratio": 2, "image_size": [24, 18], "patch_size": [6, 6], "out_indices": [3]},
        "use_simple_decoder": True, "scale_factor": 3, "num_labels": 5,
    }, (24, 18)),
}

# Models that compare texts with images of any shape, given as patches. name -> (class of the model, keys of the configuration)
SHAPES = {
    "siglip2": ("Siglip2Model", {
        "text_config": {
            "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 99,
            "max_position_embeddings": 16, "projection_size": 32, "bos_token_id": 1, "eos_token_id": 2,
        },
        "vision_config": {
            "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 3, "num_patches": 16,
        },
    }),
}

# Models of images and points in them, in two parts: they lie in fixtures/, beside the goldens. name -> (class of the model, keys of the
# configuration)
POINTS = {
    # Windows of 3 by 3 patches, which do not divide a grid of 4 by 4; the second layer attends to all of it.
    "sam": ("SamModel", {
        "vision_config": {
            "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "image_size": 24, "patch_size": 6, "window_size": 3,
            "global_attn_indexes": [1], "mlp_ratio": 2.0, "output_channels": 16, "num_pos_feats": 8,
        },
        "prompt_encoder_config": {"hidden_size": 16, "image_size": 24, "patch_size": 6, "mask_input_channels": 4},
        "mask_decoder_config": {"hidden_size": 16, "num_attention_heads": 2, "mlp_dim": 20, "iou_head_hidden_dim": 12},
    }),
}

# Encoders of sound with decoders. name -> (class of the model, keys of the configuration)
# Models of features of recordings. name -> (class of the model, keys of the configuration)
RECORDINGS = {
    "clap": ("ClapModel", {
        "projection_dim": 16,
        "text_config": {
            "vocab_size": 99, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 3,
            "max_position_embeddings": 20,
        },
        "audio_config": {
            "spec_size": 32, "num_mel_bins": 16, "window_size": 4, "patch_size": 2, "patch_stride": [2, 2], "depths": [2, 2],
            "num_attention_heads": [2, 4], "patch_embeds_hidden_size": 12, "hidden_size": 24,
        },
    }),
    "parakeet": ("ParakeetForCTC", {
        "vocab_size": 40, "pad_token_id": 39,
        "encoder_config": {
            "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 32, "conv_kernel_size": 5,
            "subsampling_factor": 4, "subsampling_conv_channels": 6, "num_mel_bins": 16,
        },
    }),
    "wav2vec2-bert": ("Wav2Vec2BertForCTC", {
        "vocab_size": 40, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 32,
        "feature_projection_input_dim": 16, "conv_depthwise_kernel_size": 5, "left_max_position_embeddings": 4,
        "right_max_position_embeddings": 2, "mask_time_prob": 0.0,
    }),
}

SEEING_TEXT = {
    "vocab_size": 139, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 3,
    "num_key_value_heads": 1, "head_dim": 16, "max_position_embeddings": 128,
}
SEEING_TOWER = {
    "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 3, "image_size": 16, "patch_size": 4,
}
# Models that see: those in fixtures/seeing, and BLIP. name -> (class of the model, keys of the configuration)
SEEING = {
    "blip": ("BlipForConditionalGeneration", {
        "text_config": {
            "vocab_size": 67, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 3,
            "max_position_embeddings": 20, "bos_token_id": 4, "sep_token_id": 2, "pad_token_id": 0, "encoder_hidden_size": 24,
        },
        "vision_config": SEEING_TOWER | {"num_channels": 3}, "image_text_hidden_size": 16, "projection_dim": 16,
    }),
    "idefics3": ("Idefics3ForConditionalGeneration", {
        "image_token_id": 137, "scale_factor": 2, "pad_token_id": 0, "text_config": SEEING_TEXT | {"model_type": "llama", "pad_token_id": 0},
        "vision_config": SEEING_TOWER,
    }),
    "paligemma": ("PaliGemmaForConditionalGeneration", {
        "image_token_index": 137, "projection_dim": 48, "hidden_size": 48, "pad_token_id": 0,
        "text_config": SEEING_TEXT | {"model_type": "gemma", "pad_token_id": 0},
        "vision_config": SEEING_TOWER | {"model_type": "siglip_vision_model", "vision_use_head": False},
    }),
}

SPEECH = {
    # Fewer layers and heads in the decoder, as distilled models have.
    "whisper": ("WhisperForConditionalGeneration", {
        "vocab_size": 67, "num_mel_bins": 8, "d_model": 24, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 3,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 40, "decoder_ffn_dim": 32, "max_source_positions": 14,
        "max_target_positions": 32, "decoder_start_token_id": 4, "pad_token_id": 3, "bos_token_id": 1, "eos_token_id": 2,
        "suppress_tokens": None, "begin_suppress_tokens": None,
    }),
    "moonshine": ("MoonshineForConditionalGeneration", {
        "vocab_size": 67, "hidden_size": 20, "intermediate_size": 24, "encoder_num_hidden_layers": 2, "decoder_num_hidden_layers": 1,
        "encoder_num_attention_heads": 2, "decoder_num_attention_heads": 2, "max_position_embeddings": 32, "pad_token_id": 3,
        "partial_rotary_factor": 0.8, "decoder_start_token_id": 1, "eos_token_id": 2,
    }),
}

LENGTH, NEW, PROMPT = 9, 12, 9


def build(name: str, kind: str, keys: dict):
    """A model in float64 with weights drawn at random, norms and biases too."""
    torch.manual_seed(sum(name.encode()))
    model_class = getattr(transformers, kind)
    config = model_class.config_class(**keys)
    # The kernel of experts that the library takes otherwise has no float64.
    model = model_class._from_config(config, attn_implementation="eager", experts_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            spread = torch.randn_like(parameter)
            # Matrices keep activations near 1; vectors are near what they start from, and no two alike.
            scale = 0.1 if parameter.ndim == 1 else SPREAD.get(name, 0.08)
            # Sines of positions are no weights, and are not stored.
            if parameter.requires_grad:
                parameter.add_(spread * scale)
        for buffer_name, buffer in model.named_buffers():
            # What routers add to scores for the choice.
            if buffer_name.endswith("e_score_correction_bias"):
                buffer.normal_(std=0.1)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.normal_()
    model.tie_weights()
    if keys.get("tie_word_embeddings") is False and model.config.tie_word_embeddings:
        # Configurations of T5 say this of a head of its own, and the library says that they are tied all the same.
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight) * 0.2)
    return model


def cache_layers(cache) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(layer.keys, layer.values) for layer in cache.layers]


def generated(model, vocabulary: int) -> dict:
    """A prompt, and greedy and beam ids: no end token is chosen, no length penalty.

    Prompts are drawn until there are three ids at least among the new ones: one id again and again tests little.
    """
    settings = dict(max_new_tokens=NEW, do_sample=False, min_new_tokens=NEW, forced_eos_token_id=None, pad_token_id=0, length_penalty=0.0)
    # A copy for each: a model with dynamic rotary embedding remembers how long its texts were.
    generate = lambda prompt, beams: copy.deepcopy(model).generate(prompt, num_beams=beams, **settings)
    for _ in range(100):
        prompt = torch.randint(3, vocabulary, (1, PROMPT))
        ids = {f"out.{what}": generate(prompt, beams) for what, beams in (("greedy", 1), ("beam4", 4))}
        if all(row[0, -NEW:].unique().numel() >= 3 for row in ids.values()):
            return {"in.prompt": prompt} | ids
    raise SystemExit(f"{model.config.model_type} generates the same ids again and again: draw its weights wider (SPREAD)")


def decoder_io(model) -> dict:
    """Rows of two lengths, each computed alone and unpadded, and a step on the cache of each."""
    vocabulary = model.config.vocab_size
    lengths = [LENGTH, LENGTH - 3]
    rows = [torch.randint(3, vocabulary, (1, length + 1)) for length in lengths]
    io = {"in.input_ids": torch.zeros(2, LENGTH, dtype=torch.int64), "in.attention_mask": torch.zeros(2, LENGTH, dtype=torch.int64)}
    io["in.position_ids"] = torch.zeros(2, LENGTH, dtype=torch.int64)
    io["in.step.input_ids"] = torch.stack([row[0, -1:] for row in rows])
    io["in.step.position_ids"] = torch.tensor([[length] for length in lengths])
    logits, steps, presents = [], [], []
    for b, (row, length) in enumerate(zip(rows, lengths)):
        start = LENGTH - length
        io["in.input_ids"][b, start:] = row[0, :-1]
        io["in.attention_mask"][b, start:] = 1
        io["in.position_ids"][b, start:] = torch.arange(length)
        alone = copy.deepcopy(model)
        # A cache without the configuration keeps all positions, those before a window too.
        out = alone(row[:, :-1], past_key_values=DynamicCache(), use_cache=True)
        presents.append([(k.clone(), v.clone()) for k, v in cache_layers(out.past_key_values)])
        steps.append(alone(row[:, -1:], past_key_values=out.past_key_values).logits[0])
        logits.append(torch.cat([torch.zeros(start, out.logits.shape[-1]), out.logits[0]]))
    io["in.step.attention_mask"] = torch.cat([io["in.attention_mask"], torch.ones(2, 1, dtype=torch.int64)], 1)
    io["out.logits"], io["out.step.logits"] = torch.stack(logits), torch.stack(steps)
    for layer in range(len(presents[0])):
        for which, side in enumerate(("key", "value")):
            kept = [row[layer][which][0] for row in presents]
            padded = [torch.cat([torch.zeros(k.shape[0], LENGTH - k.shape[1], k.shape[2]), k], 1) for k in kept]
            io[f"out.present.{layer}.{side}"] = torch.stack(padded)
    return io | generated(model, vocabulary)


def states_io(model) -> dict:
    """Rows of two lengths, each computed alone, unpadded and as a whole, and a step as the last token of a whole."""
    vocabulary = model.config.vocab_size
    lengths = [LENGTH, LENGTH - 3]
    score = lambda ids: model(input_ids=ids, use_cache=False).logits
    ids, mask, positions = (torch.zeros(2, LENGTH, dtype=torch.int64) for _ in range(3))
    rows = [torch.randint(3, vocabulary, (1, length + 1)) for length in lengths]
    logits = torch.zeros(2, LENGTH, vocabulary)
    for b, (row, length) in enumerate(zip(rows, lengths)):
        start = LENGTH - length
        ids[b, start:], mask[b, start:], positions[b, start:] = row[0, :-1], 1, torch.arange(length)
        logits[b, start:] = score(row)[0, :-1]
    for _ in range(100):
        prompt = torch.randint(3, vocabulary, (1, PROMPT))
        greedy = prompt
        for _ in range(NEW):
            scores = score(greedy)[:, -1:]
            scores[..., model.config.eos_token_id] = -torch.inf
            greedy = torch.cat([greedy, scores.argmax(-1)], 1)
        if greedy[0, -NEW:].unique().numel() >= 3:
            break
    else:
        raise SystemExit(f"{model.config.model_type} generates the same ids again and again: draw its weights wider (SPREAD)")
    return {
        "in.input_ids": ids, "in.attention_mask": mask, "in.position_ids": positions,
        "in.step.input_ids": torch.stack([row[0, -1:] for row in rows]),
        "in.step.attention_mask": torch.cat([mask, torch.ones(2, 1, dtype=torch.int64)], 1),
        "in.step.position_ids": torch.tensor([[length] for length in lengths]),
        "in.prompt": prompt, "out.greedy": greedy, "out.logits": logits,
        "out.step.logits": torch.stack([score(row)[0, -1:] for row in rows]),
    }


def seq2seq_io(model) -> dict:
    """Rows of two lengths padded on the right, a decoder prefix, and generated ids."""
    config = model.config
    vocabulary = config.vocab_size
    ids = torch.randint(3, vocabulary, (2, LENGTH))
    mask = torch.ones_like(ids)
    mask[1, LENGTH - 3 :] = 0
    ids[1, LENGTH - 3 :] = config.pad_token_id
    decoder = torch.randint(3, vocabulary, (2, 5))
    decoder[:, 0] = config.decoder_start_token_id
    out = model(input_ids=ids, attention_mask=mask, decoder_input_ids=decoder)
    return {
        "in.input_ids": ids, "in.attention_mask": mask, "in.decoder_input_ids": decoder,
        "out.encoder_last_hidden_state": out.encoder_last_hidden_state, "out.logits": out.logits,
    } | generated(model, vocabulary)


def speech_io(model) -> dict:
    """Two recordings, or their features, a decoder prefix, and greedy ids after the token that texts begin with."""
    config = model.config
    if config.model_type == "whisper":
        sound = {"input_features": torch.randn(2, config.num_mel_bins, 2 * config.max_source_positions).float().double()}
    else:
        mask = torch.ones(2, 3200, dtype=torch.int64)
        mask[1, 2400:] = 0
        sound = {"input_values": torch.randn(2, 3200).float().double() * mask, "attention_mask": mask}
    decoder = torch.randint(3, config.vocab_size, (2, 5))
    decoder[:, 0] = config.decoder_start_token_id
    out = model(**sound, decoder_input_ids=decoder)
    ids = torch.full((1, 1), config.decoder_start_token_id)
    io = {f"in.{name}": value for name, value in sound.items()}
    first = {name: value[:1] for name, value in sound.items()}
    for _ in range(NEW):
        ids = torch.cat([ids, model(**first, decoder_input_ids=ids).logits[:, -1:].argmax(-1)], 1)
    return io | {
        "in.decoder_input_ids": decoder, "in.decoder_prompt": ids[:, :1].clone(), "out.greedy": ids,
        "out.encoder_last_hidden_state": out.encoder_last_hidden_state, "out.logits": out.logits,
    }


def recordings_io(model) -> dict:
    """Features of two recordings; for CLAP three texts too. The second recording of Wav2Vec2-BERT is shorter."""
    config = model.config
    if config.model_type == "clap":
        mask = (torch.arange(9) < torch.tensor([9, 4, 6])[:, None]).long()
        ids = torch.where(mask == 1, torch.randint(3, config.text_config.vocab_size, mask.shape), config.text_config.pad_token_id)
        # Fewer frames than the image has.
        features = torch.randn(2, 1, 61, config.audio_config.num_mel_bins).float().double()
        inputs = {"input_ids": ids, "attention_mask": mask, "input_features": features}
    else:
        size = config.encoder_config.num_mel_bins if config.model_type == "parakeet_ctc" else config.feature_projection_input_dim
        mask = torch.ones(2, 22, dtype=torch.int64)
        mask[1, 22 if config.model_type == "parakeet_ctc" else 15 :] = 0
        inputs = {"input_features": torch.randn(2, 22, size).float().double() * mask[..., None], "attention_mask": mask}
    out = model(**inputs)
    names = [name for name in ("logits", "logits_per_audio", "logits_per_text", "text_embeds", "audio_embeds") if name in out]
    return {f"in.{name}": value for name, value in inputs.items()} | {f"out.{name}": out[name] for name in names}


def seeing_io(model) -> dict:
    """An image and a text with its places, and what greedy search makes of a prompt; of BLIP two images and the beginnings of texts."""
    config = model.config
    size = config.vision_config.image_size
    if config.model_type == "blip":
        pixels = torch.randn(2, 3, size, size).float().double()
        ids = torch.randint(3, config.text_config.vocab_size, (2, 5))
        ids[:, 0] = config.text_config.bos_token_id
        out = model(pixel_values=pixels, input_ids=ids)
        return {
            "in.pixel_values": pixels, "in.decoder_input_ids": ids, "out.encoder_last_hidden_state": out.last_hidden_state,
            "out.logits": out.logits,
        }
    is_paligemma = config.model_type == "paligemma"
    places = 16 if is_paligemma else 4
    pixels = torch.randn(1, 3, size, size).float().double()
    if not is_paligemma:
        pixels = pixels[None]

    def score(ids):
        given = {"pixel_values": pixels, "attention_mask": torch.ones_like(ids)}
        if is_paligemma:
            # The last tokens are an answer, which sees what was before it alone.
            given["token_type_ids"] = (torch.arange(ids.shape[1]) >= prompt.shape[1]).long()[None]
        return model(input_ids=ids, **given).logits

    token = lambda count: torch.randint(3, 136, (1, count))
    for _ in range(100):
        prompt = torch.cat([token(2), torch.full((1, places), 137), token(3)], 1)
        greedy = prompt
        # A place of an image has no vector after the prompt.
        while greedy.shape[1] < prompt.shape[1] + NEW and not (greedy[:, prompt.shape[1] :] == 137).any():
            greedy = torch.cat([greedy, score(greedy)[:, -1:].argmax(-1)], 1)
        new = greedy[0, prompt.shape[1] :]
        if (new != 137).all() and new.unique().numel() >= 3:
            break
    else:
        raise SystemExit(f"{config.model_type} generates the same ids again and again, or places of images")
    ids = torch.cat([prompt, token(3)], 1)
    io = {"in.pixel_values": pixels, "in.input_ids": ids, "out.logits": score(ids), "in.prompt": prompt, "out.greedy": greedy}
    if is_paligemma:
        io["in.token_type_ids"] = (torch.arange(ids.shape[1]) >= prompt.shape[1]).long()[None]
    return io


def labels_io(model) -> dict:
    """Rows of three lengths, padded on the right; or as many choices in each row."""
    config = model.config
    ids = torch.randint(3, config.vocab_size, (3, LENGTH))
    mask = torch.ones_like(ids)
    for row, padding in enumerate([0, 2, 5]):
        mask[row, LENGTH - padding :] = 0
    if config.model_type in ("bart", "t5"):
        # The end of each text.
        ids[torch.arange(3), mask.sum(1) - 1] = config.eos_token_id
    ids[mask == 0] = config.pad_token_id
    io = {"in.input_ids": ids, "in.attention_mask": mask}
    if config.model_type == "bert":
        io["in.token_type_ids"] = (torch.arange(LENGTH) >= 3).long() * mask
        # The choices of the second row are those of the first in another order, with a word of its own each.
        io = {key: torch.stack([value, value.roll(1, 0)]) for key, value in io.items()}
        io["in.input_ids"][1, :, 1] += 1
    out = model(**{key.removeprefix("in."): value for key, value in io.items()})
    name = "last_hidden_state" if config.architectures == ["T5EncoderModel"] else "logits"
    return io | {f"out.{name}": out[name]}


def images_io(model, sides: tuple[int, int]) -> dict:
    """Two images of random pixels."""
    pixels = torch.randn(2, 3, *sides).float().double()
    out = model(pixel_values=pixels)
    names = [name for name in ("predicted_depth", "logits", "heatmaps") if name in out]
    return {"in.pixel_values": pixels} | {f"out.{name}": out[name] for name in names}


def shapes_io(model) -> dict:
    """Three texts, and two images of other shapes than the square that positions are of, one taller and one wider."""
    config = model.config.vision_config
    grid = torch.tensor([[5, 3], [2, 7]])
    count = grid.prod(1)
    inputs = {
        "input_ids": torch.randint(3, model.config.text_config.vocab_size, (3, 9)),
        "pixel_values": torch.randn(2, int(count.max()), config.num_channels * config.patch_size**2).float().double(),
        "pixel_attention_mask": (torch.arange(int(count.max())) < count[:, None]).long(),
        "spatial_shapes": grid,
    }
    out = model(**inputs)
    names = ("logits_per_image", "logits_per_text", "text_embeds", "image_embeds")
    return {f"in.{name}": tensor for name, tensor in inputs.items()} | {f"out.{name}": out[name] for name in names}


def points_io(model) -> dict:
    """Two images of random pixels, and for each two prompts of four points, of which each has another label."""
    size = model.config.vision_config.image_size
    pixels = torch.randn(2, 3, size, size).float().double()
    points = (torch.rand(2, 2, 4, 2) * size).float().double()
    labels = torch.tensor([1, 0, -1, -10]).expand(2, 2, 4)
    encoded = model.vision_encoder(pixels).last_hidden_state
    out = model(image_embeddings=encoded, input_points=points, input_labels=labels)
    return {
        "in.pixel_values": pixels, "in.input_points": points, "in.input_labels": labels, "out.image_embeddings": encoded,
        "out.image_positional_embeddings": model.get_image_wide_positional_embeddings().repeat(2, 1, 1, 1),
        "out.iou_scores": out.iou_scores, "out.pred_masks": out.pred_masks,
    }


def write(name: str, folder: Path) -> None:
    decoder = name in DECODERS
    kind, keys, *sides = (DECODERS | STATES | SEQ2SEQ | LABELS | IMAGES | SHAPES | POINTS | SPEECH | RECORDINGS | SEEING)[name]
    model = build(name, kind, TINY | keys if decoder else keys)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    # The reference computes in float64 with the weights that were stored.
    model = model.double()
    torch.set_default_dtype(torch.float64)
    with torch.no_grad():
        make = decoder_io if decoder else states_io if name in STATES else labels_io if name in LABELS else seq2seq_io
        make = recordings_io if name in RECORDINGS else seeing_io if name in SEEING else make
        make = points_io if name in POINTS else shapes_io if name in SHAPES else speech_io if name in SPEECH else make
        io = images_io(model, *sides) if name in IMAGES else make(model)
    torch.set_default_dtype(torch.float32)
    save_file({key: (value.float() if value.is_floating_point() else value).contiguous() for key, value in io.items()}, folder / "io.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    for name in args.names or [*DECODERS, *STATES, *SEQ2SEQ, *LABELS, *IMAGES, *SHAPES, *SPEECH, *RECORDINGS]:
        write(name, args.out / name)
        print(args.out / name)


if __name__ == "__main__":
    main()
