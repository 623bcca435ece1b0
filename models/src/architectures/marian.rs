//! Marian (Junczys-Dowmunt et al. 2018, arXiv:1804.00344), as `transformers/models/marian` has it:
//! BART with sinusoidal positions, whose embeddings are not normalized, and whose decoder may have a
//! vocabulary of its own.

use crate::architecture::{Architecture, Properties};
use crate::architectures::bart::{self, Defaults, EMBEDDINGS, HEAD, Positions, Settings};
use crate::checkpoint::config_keys::Only;
use crate::layers::builder::Builder;
use crate::layers::seq2seq::{self, Shared};
use crate::{ModelError, Task};

pub(crate) const ARCHITECTURE: Architecture = Architecture {
    model_type: "marian",
    class_prefix: "Marian",
    tasks: seq2seq::TASKS,
    keys: &[bart::KEYS, &["decoder_vocab_size", "share_encoder_decoder_embeddings"]],
    only: &[
        bart::NO_BIAS_OF_LOGITS,
        bart::NO_FINAL_NORM,
        bart::NORM_AFTER,
        Only::Off("normalize_embedding"),
        Only::On("static_position_embeddings"),
    ],
    gguf: None,
    build,
    ..bart::ARCHITECTURE
};

fn build(b: &mut Builder<'_>, _: Task) -> Result<Properties, ModelError> {
    let config = b.config;
    let defaults = Defaults { vocab_size: 58101, positions: Positions::Sinusoidal, normalized_embeddings: false };
    let mut s = Settings::read(config, &defaults)?;
    let [source, _] = s.vocabularies;
    let target = config.size_or("decoder_vocab_size", source)?;
    if config.boolean("share_encoder_decoder_embeddings", true)? {
        if target.value != source.value {
            return Err(config.error(format!(
                "{source}, but {target}: `share_encoder_decoder_embeddings` says that both have the same embeddings"
            )));
        }
        let shared = Shared::find(b, EMBEDDINGS, HEAD, s.tied, [source, s.hidden])?;
        return bart::parts(b, &s, &[shared; 2]);
    }
    s.vocabularies = [source, target];
    let [_, encoder, decoder] = EMBEDDINGS;
    let encoder = Shared::find(b, std::slice::from_ref(encoder), HEAD, false, [source, s.hidden])?;
    let decoder = Shared::find(b, std::slice::from_ref(decoder), HEAD, s.tied, [target, s.hidden])?;
    bart::parts(b, &s, &[encoder, decoder])
}
