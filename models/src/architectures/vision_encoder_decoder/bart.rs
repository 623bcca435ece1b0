//! Decoders with the layers of BART: TrOCR (Li et al. 2021, arXiv:2109.10282), the one of Donut, which is mBART's (Liu et al. 2020,
//! arXiv:2001.08210), and BART's own.

use planish_ir::ValueId;
use planish_ir::ops::Linear;

use super::{Layers, TextDecoder};
use crate::ModelError;
use crate::architecture::{Architecture, Properties};
use crate::architectures::bart::{self, Positions, Settings, Stack};
use crate::checkpoint::config::{Config, Size};
use crate::layers::activation::Activation;
use crate::layers::builder::Builder;
use crate::layers::seq2seq::{self, DECODER_SEQUENCE, Decoder, Heads, Shared};

pub(super) const BART: TextDecoder = TextDecoder { architecture: LISTS, read: |b| read(b, &KINDS[0]) };

pub(super) const MBART: TextDecoder = TextDecoder {
    architecture: Architecture { model_type: "mbart", class_prefix: "MBart", ..LISTS },
    read: |b| read(b, &KINDS[1]),
};

pub(super) const TROCR: TextDecoder = TextDecoder {
    architecture: Architecture {
        model_type: "trocr",
        class_prefix: "TrOCR",
        keys: &[KEYS, &["cross_attention_hidden_size", "layernorm_embedding", "use_learned_position_embeddings"]],
        older_keys: &[
            ("hidden_size", "d_model"),
            ("num_attention_heads", "decoder_attention_heads"),
            ("num_hidden_layers", "decoder_layers"),
        ],
        ..LISTS
    },
    read: |b| read(b, &KINDS[2]),
};

const KEYS: &[&str] = &[
    "activation_function",
    "d_model",
    "decoder_attention_heads",
    "decoder_ffn_dim",
    "decoder_layers",
    "hidden_size",
    "max_position_embeddings",
    "pad_token_id",
    "scale_embedding",
    "tie_word_embeddings",
    "vocab_size",
];

/// What the configurations of all of them have; of BART.
const LISTS: Architecture = Architecture {
    keys: &[KEYS],
    only: &[],
    irrelevant_keys: &[
        // What a decoder is.
        "add_cross_attention",
        // Training.
        "activation_dropout",
        "classif_dropout",
        "decoder_layerdrop",
        "encoder_layerdrop",
        "init_std",
        // Of an encoder that is not there.
        "encoder_attention_heads",
        "encoder_ffn_dim",
        "encoder_layers",
        "extra_pos_embeddings",
        "num_attention_heads",
        "num_hidden_layers",
        "force_bos_token_to_be_generated",
        // What the classes of the library do not read.
        "add_bias_logits",
        "add_final_layer_norm",
        "normalize_before",
        "normalize_embedding",
        "static_position_embeddings",
    ],
    // A mark of computed positions.
    unused_tensors: &["decoder.embed_positions._float_tensor", "decoder.version"],
    ..bart::ARCHITECTURE
};

/// The table of the embeddings of tokens.
const WORDS: &[&str] = &["decoder.embed_tokens.weight"];

/// What one of them has apart from the others.
struct Kind {
    head: &'static str,
    norms_first: bool,
    is_trocr: bool,
    max_positions: usize,
}

const KINDS: [Kind; 3] = [
    Kind { head: "lm_head.weight", norms_first: false, is_trocr: false, max_positions: 1024 },
    Kind { head: "lm_head.weight", norms_first: true, is_trocr: false, max_positions: 1024 },
    Kind { head: "output_projection.weight", norms_first: false, is_trocr: true, max_positions: 512 },
];

struct OfBart {
    settings: Settings,
    head: &'static str,
    memory: Option<Size>,
    pad_token: Option<i64>,
}

fn read(b: &Builder<'_>, kind: &Kind) -> Result<Box<dyn Layers>, ModelError> {
    let config = b.config;
    let hidden = config.size_alias(&["d_model", "hidden_size"], 1024)?;
    let vocabulary = config.size("vocab_size", 50265)?;
    let decoder =
        Stack::read(config, "decoder", hidden, ["decoder_layers", "decoder_attention_heads", "decoder_ffn_dim"])?;
    let scaled = config.boolean("scale_embedding", false)?;
    let pad_token = config.token("pad_token_id", 1, vocabulary)?;
    let (positions, normalized_embeddings, memory) = match kind.is_trocr {
        true => (positions(config, pad_token)?, config.boolean("layernorm_embedding", true)?, memory(config)?),
        false => (Positions::Learned, true, None),
    };
    let settings = Settings {
        vocabularies: [vocabulary; 2],
        hidden,
        tied: config.boolean("tie_word_embeddings", true)?,
        max_positions: config.size("max_position_embeddings", kind.max_positions)?,
        positions,
        normalized_embeddings,
        activation: Activation::read(config, "activation_function", "gelu")?,
        embedding_scale: scaled.then(|| (hidden.value as f64).sqrt()),
        encoder: decoder,
        decoder,
        norms_first: kind.norms_first,
        memory: hidden,
    };
    Ok(Box::new(OfBart { settings, head: kind.head, memory, pad_token }))
}

/// The positions of TrOCR.
fn positions(config: &Config<'_>, pad_token: Option<i64>) -> Result<Positions, ModelError> {
    match (config.boolean("use_learned_position_embeddings", true)?, pad_token) {
        (true, _) => Ok(Positions::Learned),
        (false, Some(padding)) => Ok(Positions::OfTokens { padding }),
        (false, None) => Err(config.error("`pad_token_id` is not an id: the positions of tokens depend on it")),
    }
}

fn memory(config: &Config<'_>) -> Result<Option<Size>, ModelError> {
    const KEY: &str = "cross_attention_hidden_size";
    let size = config.optional_size(KEY, None)?;
    Ok(size.map(|value| Size { value, key: KEY, is_default: false }))
}

impl Layers for OfBart {
    fn vocabulary(&self) -> Size {
        self.settings.vocabularies[1]
    }

    fn hidden(&self) -> Size {
        self.settings.hidden
    }

    fn heads(&self) -> Heads {
        self.settings.decoder.heads
    }

    fn memory(&self, _: Size) -> Size {
        self.memory.unwrap_or(self.settings.hidden)
    }

    fn has_projection(&self) -> bool {
        self.memory.is_none()
    }

    fn attend_to(&mut self, memory: Size) {
        self.settings.memory = memory;
    }

    fn logits(&self, b: &mut Builder<'_>, decoder: &mut Decoder) -> Result<ValueId, ModelError> {
        let (s, shape) = (&self.settings, [self.vocabulary(), self.hidden()]);
        let words = Shared::find(b, WORDS, self.head, false, shape)?;
        let x = bart::decoder_layers(b, s, &words, decoder, DECODER_SEQUENCE)?;
        let weight = seq2seq::head_weight(b, self.head, WORDS[0], s.tied, shape)?;
        b.emit(Linear::new(x, weight, None), "lm_head")
    }

    fn properties(&self, _: &Builder<'_>) -> Properties {
        Properties {
            max_positions: Some(self.settings.max_positions.value),
            vocab_size: Some(self.vocabulary().value),
            pad_token_id: self.pad_token,
            ..Properties::default()
        }
    }
}
