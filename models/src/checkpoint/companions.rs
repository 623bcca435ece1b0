//! The files beside a model that an artifact takes over.

use std::path::Path;

use crate::sentence;

/// Files that belong to a model and go into an artifact unchanged.
const COMPANIONS: &[&str] = &[
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
    "preprocessor_config.json",
    "processor_config.json",
    // Of sentence-transformers.
    "modules.json",
    "config_sentence_transformers.json",
];

/// What sentence-transformers says of the model, by the names that its versions give the file; the first that is there counts.
pub const TRANSFORMER_SETTINGS: [&str; 7] = [
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];

/// The files of a model's folder that belong into an artifact unchanged, by their names in both: configurations, tokenizers, and
/// the files of the modules of a sentence model.
#[must_use]
pub fn companions(folder: &Path) -> Vec<String> {
    let of_modules = sentence::files_of_modules(folder);
    let all = named().map(str::to_owned).chain(of_modules);
    all.filter(|name| folder.join(name).is_file()).collect()
}

/// Whether files of this name belong to a model.
#[must_use]
pub fn is_companion(name: &str) -> bool {
    named().any(|known| known == name)
}

/// The names that such files have in a folder.
pub(crate) fn named() -> impl Iterator<Item = &'static str> {
    COMPANIONS.iter().copied().chain(TRANSFORMER_SETTINGS)
}
