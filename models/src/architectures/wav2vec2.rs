//! wav2vec 2.0 (Baevski et al. 2020, arXiv:2006.11477) and the models with its layers, as `transformers/models/wav2vec2`,
//! `hubert`, `unispeech`, `unispeech_sat`, `wavlm` and `data2vec` have them. Graphs take waveforms without a mask, as those of
//! Optimum: rows of one length.

use crate::architecture::Architecture;
use crate::layers::speech::settings::{
    ADAPTER_KEYS, ATTENTION_ADAPTER_KEYS, ENCODER_KEYS, FRONT_KEYS, IRRELEVANT, NORM_KEYS, POSITION_KEYS, Positions,
    UNUSED, XVECTOR_KEYS,
};
use crate::layers::speech::{self, Family, TASKS, TASKS_OF_TEXT, conformer};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "wav2vec2",
    class_prefix: "Wav2Vec2",
    base: "wav2vec2",
    other_bases: &[],
    renamed: &[],
    tasks: TASKS,
    keys: &[FRONT_KEYS, ENCODER_KEYS, POSITION_KEYS, NORM_KEYS, ADAPTER_KEYS, ATTENTION_ADAPTER_KEYS, XVECTOR_KEYS],
    older_keys: &[],
    only: &[],
    irrelevant_keys: IRRELEVANT,
    unused_tensors: UNUSED,
    pad_token_id: None,
    gguf: None,
    build: |b, task| speech::build(b, task, WAV2VEC2),
};

const WAV2VEC2: Family = Family {
    chooses_norms: true,
    positions: Positions::WeightNorm,
    chooses_projection_norm: false,
    has_adapter: true,
    has_attention_adapter: true,
    is_gated: false,
    is_conformer: false,
    has_xvectors: true,
};

/// HuBERT (Hsu et al. 2021, arXiv:2106.07447).
pub(crate) const HUBERT: Architecture = Architecture {
    model_type: "hubert",
    class_prefix: "Hubert",
    base: "hubert",
    tasks: TASKS_OF_TEXT,
    keys: &[
        FRONT_KEYS,
        ENCODER_KEYS,
        POSITION_KEYS,
        NORM_KEYS,
        ATTENTION_ADAPTER_KEYS,
        &["conv_pos_batch_norm", "feat_proj_layer_norm"],
    ],
    build: |b, task| {
        let family = Family {
            positions: Positions::WeightOrBatchNorm,
            chooses_projection_norm: true,
            has_adapter: false,
            has_xvectors: false,
            ..WAV2VEC2
        };
        speech::build(b, task, family)
    },
    ..ARCHITECTURE
};

/// UniSpeech (Wang et al. 2021, arXiv:2101.07597).
pub(crate) const UNISPEECH: Architecture = Architecture {
    model_type: "unispeech",
    class_prefix: "UniSpeech",
    base: "unispeech",
    tasks: TASKS_OF_TEXT,
    keys: &[FRONT_KEYS, ENCODER_KEYS, POSITION_KEYS, NORM_KEYS, ATTENTION_ADAPTER_KEYS],
    build: |b, task| speech::build(b, task, Family { has_adapter: false, has_xvectors: false, ..WAV2VEC2 }),
    ..ARCHITECTURE
};

/// UniSpeech-SAT (Chen et al. 2021, arXiv:2110.05752).
pub(crate) const UNISPEECH_SAT: Architecture = Architecture {
    model_type: "unispeech-sat",
    class_prefix: "UniSpeechSat",
    base: "unispeech_sat",
    keys: &[FRONT_KEYS, ENCODER_KEYS, POSITION_KEYS, NORM_KEYS, ATTENTION_ADAPTER_KEYS, XVECTOR_KEYS],
    build: |b, task| speech::build(b, task, Family { has_adapter: false, ..WAV2VEC2 }),
    ..ARCHITECTURE
};

/// WavLM (Chen et al. 2021, arXiv:2110.13900).
pub(crate) const WAVLM: Architecture = Architecture {
    model_type: "wavlm",
    class_prefix: "WavLM",
    base: "wavlm",
    keys: &[
        FRONT_KEYS,
        ENCODER_KEYS,
        POSITION_KEYS,
        NORM_KEYS,
        ADAPTER_KEYS,
        XVECTOR_KEYS,
        &["max_bucket_distance", "num_buckets"],
    ],
    build: |b, task| speech::build(b, task, Family { has_attention_adapter: false, is_gated: true, ..WAV2VEC2 }),
    ..ARCHITECTURE
};

/// wav2vec 2.0 with the layers of conformers (Wang et al. 2020, arXiv:2010.05171).
pub(crate) const CONFORMER: Architecture = Architecture {
    model_type: "wav2vec2-conformer",
    class_prefix: "Wav2Vec2Conformer",
    base: "wav2vec2_conformer",
    keys: &[FRONT_KEYS, ENCODER_KEYS, POSITION_KEYS, NORM_KEYS, ADAPTER_KEYS, XVECTOR_KEYS, conformer::KEYS],
    build: |b, task| {
        let family = Family { has_attention_adapter: false, is_conformer: true, ..WAV2VEC2 };
        speech::build(b, task, family)
    },
    ..ARCHITECTURE
};

/// data2vec for speech (Baevski et al. 2022, arXiv:2202.03555).
pub(crate) const DATA2VEC: Architecture = Architecture {
    model_type: "data2vec-audio",
    class_prefix: "Data2VecAudio",
    base: "data2vec_audio",
    keys: &[FRONT_KEYS, ENCODER_KEYS, POSITION_KEYS, ADAPTER_KEYS, XVECTOR_KEYS, &["conv_pos_kernel_size"]],
    build: |b, task| {
        let family =
            Family { chooses_norms: false, positions: Positions::Several, has_attention_adapter: false, ..WAV2VEC2 };
        speech::build(b, task, family)
    },
    ..ARCHITECTURE
};
