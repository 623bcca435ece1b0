//! GPT-2 (Radford et al. 2019) with attention to an encoder in each layer, as `GPT2LMHeadModel` of the transformers library has it where
//! `add_cross_attention` is true.

use planish_ir::ops::{Linear, Slice, Split};
use planish_ir::{Dim, ValueId};

use super::{Layers, TextDecoder};
use crate::ModelError;
use crate::architecture::{Architecture, Properties};
use crate::architectures::gpt2::{self, Settings};
use crate::checkpoint::config::Size;
use crate::layers::builder::Builder;
use crate::layers::seq2seq::{self, DECODER_SEQUENCE, Decoder, Heads};

pub(super) const GPT2: TextDecoder = TextDecoder {
    architecture: Architecture {
        keys: &[gpt2::KEYS, &["tie_word_embeddings"]],
        irrelevant_keys: &[
            // What a decoder is, and the features of the encoder, which the projection before it fits.
            "add_cross_attention",
            "n_ctx",
            "pad_token_id",
            "reorder_and_upcast_attn",
            "summary_activation",
            "summary_first_dropout",
            "summary_proj_to_labels",
            "summary_type",
            "summary_use_proj",
        ],
        unused_tensors: &[".attn.bias", ".attn.masked_bias", ".crossattention.bias", ".crossattention.masked_bias"],
        ..gpt2::ARCHITECTURE
    },
    read: |b| {
        let tied = b.config.boolean("tie_word_embeddings", true)?;
        Ok(Box::new(OfGpt2 { settings: Settings::read(b.config)?, tied }))
    },
};

struct OfGpt2 {
    settings: Settings,
    tied: bool,
}

impl Layers for OfGpt2 {
    fn vocabulary(&self) -> Size {
        self.settings.vocabulary
    }

    fn hidden(&self) -> Size {
        self.settings.hidden
    }

    fn heads(&self) -> Heads {
        let s = &self.settings;
        Heads { count: s.heads.queries, size: s.heads.size, scale: s.scale(0) }
    }

    fn logits(&self, b: &mut Builder<'_>, decoder: &mut Decoder) -> Result<ValueId, ModelError> {
        let (s, hidden) = (&self.settings, self.settings.hidden);
        let words = b.embedding(decoder.input_ids, "wte", s.vocabulary, hidden)?;
        let table = b.weight(&["wpe.weight"], &[s.positions, hidden])?;
        let start = decoder.past();
        let end = start.checked_add(&Dim::symbol(DECODER_SEQUENCE)).unwrap_or_default();
        let places = b.emit(Slice { x: table, axis: 0, start, end }, "wpe")?;
        let mut x = b.add(words, places, "embeddings.add")?;
        for layer in 0..s.layers.value {
            let at = |name: &str| format!("h.{layer}.{name}");
            decoder.scale(s.scale(layer));
            let qkv = s.qkv(b, x, layer)?;
            let attended = decoder.attend(b, qkv, None, &at("attn"))?;
            x = s.project(b, [attended, x], &at("attn"))?;

            let normal = b.layer_norm(x, &at("ln_cross_attn"), hidden, s.eps)?;
            let q = b.conv1d(normal, &at("crossattention.q_attn"), hidden, hidden)?;
            let project = |b: &mut Builder<'_>, states| {
                let both = Size::derived(2 * hidden.value, "2 * n_embd");
                let packed = b.conv1d(states, &at("crossattention.c_attn"), both, hidden)?;
                let halves = Split { x: packed, axis: 2, sizes: vec![hidden.value; 2] };
                match b.emit_all(halves, &at("crossattention.split"))?[..] {
                    [k, v] => Ok([k, v]),
                    _ => unreachable!("a split has as many results as sizes"),
                }
            };
            let attended = decoder.attend_to_encoder(b, q, project, &at("crossattention"))?;
            x = s.project(b, [attended, x], &at("crossattention"))?;
            x = s.feed_forward(b, x, layer)?;
        }
        let x = b.layer_norm(x, "ln_f", hidden, s.eps)?;
        let shape = [s.vocabulary, hidden];
        let weight = seq2seq::head_weight(b, "lm_head.weight", "wte.weight", self.tied, shape)?;
        b.emit(Linear::new(x, weight, None), "lm_head")
    }

    fn properties(&self, b: &Builder<'_>) -> Properties {
        let s = &self.settings;
        seq2seq::properties(b, s.vocabulary, Some(s.positions.value))
    }
}
