//! BERT (Devlin et al. 2018, arXiv:1810.04805) and RoBERTa (Liu et al. 2019, arXiv:1907.11692) as decoders, as `BertLMHeadModel` and
//! `RobertaForCausalLM` of the transformers library are where `add_cross_attention` is true: attention to an encoder comes after that
//! to the text.

use planish_ir::ops::Slice;
use planish_ir::{Dim, ValueId};

use super::{Layers, TextDecoder};
use crate::ModelError;
use crate::architecture::{Architecture, Properties};
use crate::architectures::bert::{self, Defaults, LAYER};
use crate::architectures::roberta;
use crate::checkpoint::config::Size;
use crate::checkpoint::config_keys::Only;

use crate::layers::builder::Builder;
use crate::layers::dense::Forms;
use crate::layers::encoder::{self, LayerNames, Settings};
use crate::layers::heads::{self, TextHeads};
use crate::layers::seq2seq::{DECODER_SEQUENCE, Decoder, Heads};

pub(super) const BERT: TextDecoder = TextDecoder {
    architecture: Architecture {
        irrelevant_keys: &[
            "add_cross_attention",
            "directionality",
            "pooler_fc_size",
            "pooler_num_attention_heads",
            "pooler_num_fc_layers",
            "pooler_size_per_head",
            "pooler_type",
        ],
        keys: KEYS,
        only: ONLY,
        unused_tensors: &["embeddings.position_ids", "pooler.", "cls.seq_relationship."],
        ..bert::ARCHITECTURE
    },
    read: |b| read(b, &Defaults::BERT, false),
};

pub(super) const ROBERTA: TextDecoder = TextDecoder { architecture: of_roberta("roberta"), read: read_roberta };

pub(super) const XLM_ROBERTA: TextDecoder =
    TextDecoder { architecture: of_roberta("xlm-roberta"), read: read_xlm_roberta };

pub(super) const CAMEMBERT: TextDecoder = TextDecoder { architecture: of_roberta("camembert"), read: read_xlm_roberta };

/// The text model of BLIP (Li et al. 2022, arXiv:2201.12086), as `BlipTextLMHeadModel` has it: without types of tokens, and with attention
/// to as many features as the encoder gives.
pub(crate) const BLIP_TEXT: TextDecoder = TextDecoder {
    architecture: Architecture {
        model_type: "blip_text_model",
        class_prefix: "BlipText",
        keys: &[&[
            "hidden_act",
            "hidden_size",
            "intermediate_size",
            "layer_norm_eps",
            "max_position_embeddings",
            "num_attention_heads",
            "num_hidden_layers",
            "pad_token_id",
            "tie_word_embeddings",
            "vocab_size",
        ]],
        only: &[],
        irrelevant_keys: &["add_cross_attention", "encoder_hidden_size", "label_smoothing", "projection_dim"],
        unused_tensors: &["embeddings.position_ids", "pooler."],
        ..bert::ARCHITECTURE
    },
    read: |b| {
        let defaults = Defaults { vocab_size: 30524, num_attention_heads: 8, ..Defaults::BERT };
        let settings = bert::settings(b.config, &defaults)?;
        let (max_positions, memory) = (settings.positions.value, settings.hidden);
        Ok(Box::new(OfBert { settings, types: None, padding: None, max_positions, memory, is_blip: true }))
    },
};

const KEYS: &[&[&str]] = &[bert::KEYS, &["tie_word_embeddings"]];

const ONLY: &[Only] = &[Only::Text("position_embedding_type", "absolute")];

const fn of_roberta(model_type: &'static str) -> Architecture {
    let of = match model_type.len() {
        7 => roberta::ARCHITECTURE,
        11 => roberta::XLM_ROBERTA,
        _ => roberta::CAMEMBERT,
    };
    Architecture {
        irrelevant_keys: &["add_cross_attention"],
        keys: KEYS,
        only: ONLY,
        unused_tensors: &["embeddings.position_ids", "embeddings.token_type_ids", "pooler."],
        ..of
    }
}

fn read_roberta(b: &Builder<'_>) -> Result<Box<dyn Layers>, ModelError> {
    read(b, &Defaults { vocab_size: 50265, pad_token_id: 1, ..Defaults::BERT }, true)
}

fn read_xlm_roberta(b: &Builder<'_>) -> Result<Box<dyn Layers>, ModelError> {
    read(b, &Defaults { pad_token_id: 1, ..Defaults::BERT }, true)
}

/// The attention to the encoder.
const CROSS: LayerNames = LayerNames {
    query: "crossattention.self.query",
    key: "crossattention.self.key",
    value: "crossattention.self.value",
    output: "crossattention.output.dense",
    attention_norm: "crossattention.output.LayerNorm",
    ..LAYER
};

struct OfBert {
    settings: Settings,
    /// How many types tokens have, if any.
    types: Option<Size>,
    /// The id of padding, which positions depend on in RoBERTa.
    padding: Option<i64>,
    max_positions: usize,
    /// The features of what it attends to besides itself.
    memory: Size,
    is_blip: bool,
}

fn read(b: &Builder<'_>, defaults: &Defaults, is_roberta: bool) -> Result<Box<dyn Layers>, ModelError> {
    let settings = bert::settings(b.config, defaults)?;
    let types = Some(bert::token_types(b)?);
    let padding = if is_roberta { Some(roberta::padding(b, &settings)?) } else { None };
    let before = padding.map_or(0, |pad| usize::try_from(pad + 1).unwrap_or_default());
    let max_positions = settings.positions.value.saturating_sub(before);
    let memory = settings.hidden;
    Ok(Box::new(OfBert { settings, types, padding, max_positions, memory, is_blip: false }))
}

impl OfBert {
    /// The normalized embeddings of tokens, of the type of all and of positions.
    fn embeddings(&self, b: &mut Builder<'_>, decoder: &Decoder) -> Result<ValueId, ModelError> {
        let (s, past) = (&self.settings, decoder.past());
        let words = b.embedding(decoder.input_ids, "embeddings.word_embeddings", s.vocabulary, s.hidden)?;
        let module = "embeddings.position_embeddings";
        let places = match self.padding {
            Some(pad) => {
                let ids = roberta::position_ids(b, decoder.input_ids, pad, &past)?;
                b.embedding(ids, module, s.positions, s.hidden)?
            }
            None => {
                let table = b.weight(&[&format!("{module}.weight")], &[s.positions, s.hidden])?;
                let end = past.checked_add(&Dim::symbol(DECODER_SEQUENCE)).unwrap_or_default();
                b.emit(Slice { x: table, axis: 0, start: past, end }, module)?
            }
        };
        let types = self.types.map(|types| roberta::type_of_all(b, types, s.hidden)).transpose()?;
        let others: Vec<ValueId> = types.into_iter().chain([places]).collect();
        encoder::embeddings(b, s, words, &others)
    }
}

impl Layers for OfBert {
    fn vocabulary(&self) -> Size {
        self.settings.vocabulary
    }

    fn hidden(&self) -> Size {
        self.settings.hidden
    }

    fn heads(&self) -> Heads {
        let heads = self.settings.attention_heads();
        Heads { count: heads.queries, size: heads.size, scale: 1.0 / (heads.size.value as f64).sqrt() }
    }

    fn memory(&self, given: Size) -> Size {
        if self.is_blip { given } else { self.settings.hidden }
    }

    fn attend_to(&mut self, memory: Size) {
        self.memory = memory;
    }

    fn logits(&self, b: &mut Builder<'_>, decoder: &mut Decoder) -> Result<ValueId, ModelError> {
        let (s, square) = (&self.settings, [self.settings.hidden; 2]);
        let mut x = self.embeddings(b, decoder)?;
        for layer in 0..s.layers.value {
            let path = format!("{}.{layer}", LAYER.layers);
            let at = |name: &str| format!("{path}.{name}");
            x = encoder::attended(b, s, &LAYER, &Forms::LINEAR, &path, x, |b, x| {
                let mut qkv = [x; 3];
                for (value, name) in qkv.iter_mut().zip([LAYER.query, LAYER.key, LAYER.value]) {
                    *value = b.projection(x, &at(name), square, true)?;
                }
                decoder.attend(b, qkv, None, &at("attention"))
            })?;
            x = encoder::attended(b, s, &CROSS, &Forms::LINEAR, &path, x, |b, x| {
                let q = b.projection(x, &at(CROSS.query), square, true)?;
                let project = |b: &mut Builder<'_>, states| {
                    let k = b.projection(states, &at(CROSS.key), [s.hidden, self.memory], true)?;
                    Ok([k, b.projection(states, &at(CROSS.value), [s.hidden, self.memory], true)?])
                };
                decoder.attend_to_encoder(b, q, project, &at("crossattention"))
            })?;
            x = encoder::fed_forward(b, s, &LAYER, &Forms::LINEAR, &path, x)?;
        }
        let heads = if self.padding.is_some() { TextHeads::roberta() } else { bert::heads(s.activation) };
        heads::scores(b, &s.head_sizes(), x, &heads.masked)
    }

    fn properties(&self, _: &Builder<'_>) -> Properties {
        self.settings.properties(self.max_positions)
    }
}
