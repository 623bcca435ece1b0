//! The tokenizer in a GGUF file's metadata, as the files of the `tokenizers` library.

use std::collections::HashMap;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Map, Value, json};

use super::metadata::{Metadata, Value as Stored};

/// The types of tokens that count here.
const NORMAL: u8 = 1;
const CONTROL: u8 = 3;
const USER_DEFINED: u8 = 4;

/// Texts are split at letters, digits and signs, and each digit is on its own.
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The same with up to three digits together.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// How texts are split before tokens of bytes are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Split {
    /// As for GPT-2.
    Gpt2,
    /// As for GPT-2, and each digit is on its own.
    Digits,
    /// By an expression; a text becomes Unicode's form NFC before, or whole pieces that are tokens are not merged.
    Expression { expression: &'static str, nfc: bool, ignore_merges: bool },
}

/// The names of splits in `tokenizer.ggml.pre`.
const SPLITS: &[(&str, Split)] = &[
    ("gpt-2", Split::Gpt2),
    ("phi-2", Split::Gpt2),
    ("mpt", Split::Gpt2),
    ("olmo", Split::Gpt2),
    ("starcoder", Split::Digits),
    ("refact", Split::Digits),
    ("command-r", Split::Digits),
    ("smollm", Split::Digits),
    ("qwen2", Split::Expression { expression: QWEN2, nfc: true, ignore_merges: false }),
    ("deepseek-r1-qwen", Split::Expression { expression: QWEN2, nfc: true, ignore_merges: false }),
    ("llama3", Split::Expression { expression: LLAMA3, nfc: false, ignore_merges: true }),
    ("llama-v3", Split::Expression { expression: LLAMA3, nfc: false, ignore_merges: true }),
    ("llama-bpe", Split::Expression { expression: LLAMA3, nfc: false, ignore_merges: true }),
];

/// How tokens are made of a text.
#[derive(Debug)]
enum Model {
    /// Merges of bytes, each pair with a space between (`tokenizer.ggml.model` "gpt2").
    Bytes { merges: Vec<(String, String)>, split: Split },
    /// Pieces with scores (`tokenizer.ggml.model` "llama"): the merge with the best score goes first.
    Pieces { scores: Vec<f32>, space_prefix: bool },
}

/// The tokens of a model and how texts become tokens.
#[derive(Debug)]
pub(super) struct Vocabulary {
    tokens: Vec<String>,
    /// The type of each token.
    types: Vec<u8>,
    model: Model,
    add_bos: bool,
    add_eos: bool,
    bos: Option<usize>,
    eos: Option<usize>,
    unknown: Option<usize>,
    padding: Option<usize>,
    chat_template: Option<String>,
}

impl Vocabulary {
    /// Reads the tokenizer of a model with so many token ids, and what was assumed of it.
    ///
    /// # Errors
    /// Why there is none that can be written.
    pub(super) fn read(metadata: &Metadata, vocabulary: usize) -> Result<(Self, Option<String>), String> {
        let get = |key: &str| metadata.get(&format!("tokenizer.ggml.{key}"));
        let text = |key: &str| match get(key) {
            Some(Stored::Text(text)) => Some(text.as_str()),
            _ => None,
        };
        let texts = |key: &str| match get(key) {
            Some(Stored::Array(list)) => metadata.texts(list),
            _ => None,
        };
        let list = |key: &str| match get(key) {
            Some(Stored::Array(list)) => metadata.numbers(list),
            _ => None,
        };
        let flag = |key: &str| match get(key) {
            Some(Stored::Bool(flag)) => Some(*flag),
            _ => None,
        };
        let tokens = texts("tokens").ok_or("`tokenizer.ggml.tokens` is no list of texts in UTF-8")?;
        if tokens.len() > vocabulary {
            return Err(format!(
                "`tokenizer.ggml.tokens` has {} tokens, the embeddings have {vocabulary}",
                tokens.len()
            ));
        }
        let types: Vec<u8> = match get("token_type") {
            None => vec![1; tokens.len()],
            Some(_) => list("token_type").unwrap_or_default().into_iter().map(|kind| kind as u8).collect(),
        };
        if types.len() != tokens.len() {
            return Err(format!("`tokenizer.ggml.token_type` has {} elements, expected {}", types.len(), tokens.len()));
        }
        let mut assumed = None;
        let model = match text("model") {
            Some("gpt2") => {
                let merges = texts("merges").ok_or("`tokenizer.ggml.merges` is no list of texts in UTF-8")?;
                // A token of a pair may begin with a space.
                let pair = |merge: &&str| {
                    let at = merge.char_indices().skip(1).find(|(_, c)| *c == ' ')?.0;
                    Some((merge[..at].to_owned(), merge[at + 1..].to_owned()))
                };
                let merges: Option<Vec<_>> = merges.iter().map(pair).collect();
                let merges = merges.ok_or("`tokenizer.ggml.merges` has an element that is no pair")?;
                let split = match text("pre") {
                    None | Some("default") => {
                        assumed =
                            Some("`tokenizer.ggml.pre` does not say how texts are split: as for gpt-2".to_owned());
                        Split::Gpt2
                    }
                    Some(pre) => {
                        SPLITS.iter().find(|(name, _)| *name == pre).map(|(_, split)| *split).ok_or_else(|| {
                            let known: Vec<&str> = SPLITS.iter().map(|(name, _)| *name).collect();
                            format!("`tokenizer.ggml.pre` is \"{pre}\": known are {}", known.join(", "))
                        })?
                    }
                };
                Model::Bytes { merges, split }
            }
            Some("llama") => {
                let scores = list("scores").unwrap_or_default();
                if scores.len() != tokens.len() || scores.iter().any(|score| score.is_nan()) {
                    return Err(format!(
                        "`tokenizer.ggml.scores` has {} numbers, expected {}",
                        scores.len(),
                        tokens.len()
                    ));
                }
                let scores = scores.into_iter().map(|score| score as f32).collect();
                Model::Pieces { scores, space_prefix: flag("add_space_prefix").unwrap_or(true) }
            }
            Some(other) => return Err(format!("`tokenizer.ggml.model` is \"{other}\": known are gpt2 and llama")),
            None => return Err("`tokenizer.ggml.model` is missing".to_owned()),
        };
        let id = |key: &str| match get(&format!("{key}_token_id")) {
            Some(Stored::Integer(id)) => usize::try_from(*id).ok().filter(|id| *id < tokens.len()),
            _ => None,
        };
        // What llama.cpp takes where the file does not say.
        let begins = match &model {
            Model::Pieces { .. } => true,
            Model::Bytes { split, .. } => matches!(split, Split::Expression { ignore_merges: true, .. }),
        };
        let chat_template = match metadata.get("tokenizer.chat_template") {
            Some(Stored::Text(template)) => Some(template.clone()),
            _ => None,
        };
        let read = Self {
            types,
            add_bos: flag("add_bos_token").unwrap_or(begins),
            add_eos: flag("add_eos_token").unwrap_or(false),
            bos: id("bos"),
            eos: id("eos"),
            unknown: id("unknown"),
            padding: id("padding"),
            chat_template,
            tokens: tokens.iter().map(|token| (*token).to_owned()).collect(),
            model,
        };
        Ok((read, assumed))
    }

    fn token(&self, id: Option<usize>) -> Option<&str> {
        id.and_then(|id| self.tokens.get(id)).map(String::as_str)
    }

    /// `tokenizer.json` and `tokenizer_config.json`.
    pub(super) fn files(&self, config: &Map<String, Value>) -> [(&'static str, String); 2] {
        [("tokenizer.json", self.tokenizer()), ("tokenizer_config.json", self.settings(config))]
    }

    fn settings(&self, config: &Map<String, Value>) -> String {
        let mut settings = Map::new();
        settings.insert("tokenizer_class".to_owned(), json!("PreTrainedTokenizerFast"));
        settings.insert("clean_up_tokenization_spaces".to_owned(), json!(false));
        settings.insert("add_bos_token".to_owned(), json!(self.add_bos));
        settings.insert("add_eos_token".to_owned(), json!(self.add_eos));
        let longest = ["max_position_embeddings", "n_positions"].into_iter().find_map(|key| config.get(key));
        settings.extend(longest.map(|longest| ("model_max_length".to_owned(), longest.clone())));
        let special = [("bos", self.bos), ("eos", self.eos), ("unk", self.unknown), ("pad", self.padding)];
        for (name, token) in special.into_iter().filter_map(|(name, id)| Some((name, self.token(id)?))) {
            settings.insert(format!("{name}_token"), json!(token));
        }
        settings.extend(self.chat_template.as_ref().map(|template| ("chat_template".to_owned(), json!(template))));
        super::pretty(&settings)
    }

    /// The tokens that texts are searched for, and that are not merged.
    fn added(&self) -> Vec<Value> {
        let added = self.tokens.iter().zip(&self.types).enumerate();
        let added =
            added.filter(|(id, (_, kind))| matches!(**kind, CONTROL | USER_DEFINED) || Some(*id) == self.unknown);
        added
            .map(|(id, (token, kind))| {
                json!({
                    "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                    "normalized": false, "special": *kind != USER_DEFINED
                })
            })
            .collect()
    }

    fn tokenizer(&self) -> String {
        let (normalizer, pre_tokenizer, decoder) = match &self.model {
            Model::Bytes { split, .. } => {
                let bytes = |regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex});
                let pre = match split {
                    Split::Gpt2 => bytes(true),
                    Split::Digits => {
                        let digits = json!({"type": "Digits", "individual_digits": true});
                        json!({"type": "Sequence", "pretokenizers": [digits, bytes(true)]})
                    }
                    Split::Expression { expression, .. } => {
                        let split = json!({
                            "type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": false
                        });
                        json!({"type": "Sequence", "pretokenizers": [split, bytes(false)]})
                    }
                };
                let nfc = matches!(split, Split::Expression { nfc: true, .. });
                (if nfc { json!({"type": "NFC"}) } else { Value::Null }, pre, bytes(true))
            }
            Model::Pieces { space_prefix, .. } => {
                let space = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
                let normalizer = match space_prefix {
                    true => json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, space]}),
                    false => space,
                };
                let mut decoders = vec![
                    json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
                    json!({"type": "ByteFallback"}),
                    json!({"type": "Fuse"}),
                ];
                if *space_prefix {
                    decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
                }
                (normalizer, Value::Null, json!({"type": "Sequence", "decoders": decoders}))
            }
        };
        let merges = match &self.model {
            Model::Bytes { merges, .. } => merges.iter().map(|(a, b)| [a.as_str(), b.as_str()]).collect(),
            Model::Pieces { scores, .. } => self.merges(scores),
        };
        let pieces = matches!(self.model, Model::Pieces { .. });
        let ignore_merges =
            matches!(&self.model, Model::Bytes { split: Split::Expression { ignore_merges: true, .. }, .. });
        let file = File {
            version: "1.0",
            truncation: (),
            padding: (),
            added_tokens: self.added(),
            normalizer,
            pre_tokenizer,
            post_processor: self.post_processor(),
            decoder,
            model: Bpe {
                kind: "BPE",
                dropout: (),
                unk_token: self.token(self.unknown).filter(|_| pieces),
                continuing_subword_prefix: (),
                end_of_word_suffix: (),
                fuse_unk: pieces,
                byte_fallback: pieces,
                ignore_merges,
                vocab: Ids(&self.tokens),
                merges,
            },
        };
        serde_json::to_string(&file).unwrap_or_default()
    }

    /// All pairs of pieces that make a piece, that with the best score first: what a merge of pieces by their scores does.
    fn merges(&self, scores: &[f32]) -> Vec<[&str; 2]> {
        let ids: HashMap<&str, usize> =
            self.tokens.iter().enumerate().map(|(id, token)| (token.as_str(), id)).collect();
        let mut merges = Vec::new();
        let is_merged = |id: usize| self.types[id] == NORMAL && self.tokens[id].len() <= LONGEST_PIECE;
        for (id, token) in self.tokens.iter().enumerate().filter(|(id, _)| is_merged(*id)) {
            let mut pairs = Vec::new();
            for (at, _) in token.char_indices().skip(1) {
                let (a, b) = token.split_at(at);
                if let (Some(first), Some(second)) = (ids.get(a), ids.get(b)) {
                    pairs.push((*first, *second, [a, b]));
                }
            }
            pairs.sort_by_key(|(first, second, _)| (*first, *second));
            merges.extend(pairs.into_iter().map(|(_, _, pair)| (scores[id], pair)));
        }
        merges.sort_by(|a, b| b.0.total_cmp(&a.0));
        merges.into_iter().map(|(_, pair)| pair).collect()
    }

    /// What puts the tokens of the beginning and the end around a text.
    fn post_processor(&self) -> Value {
        let around = |id: Option<usize>, add: bool| id.filter(|_| add).and_then(|id| Some((id, self.tokens.get(id)?)));
        let (begin, end) = (around(self.bos, self.add_bos), around(self.eos, self.add_eos));
        if begin.is_none() && end.is_none() {
            return Value::Null;
        }
        let special =
            |(_, token): &(usize, &String), sequence: u8| json!({"SpecialToken": {"id": token, "type_id": sequence}});
        let text = |name: &str, sequence: u8| {
            let own = json!({"Sequence": {"id": name, "type_id": sequence}});
            let begin = begin.as_ref().map(|token| special(token, sequence));
            begin.into_iter().chain([own]).chain(end.as_ref().map(|token| special(token, sequence))).collect::<Vec<_>>()
        };
        let tokens: Map<String, Value> = [&begin, &end]
            .into_iter()
            .flatten()
            .map(|(id, token)| ((*token).clone(), json!({"id": token, "ids": [id], "tokens": [token]})))
            .collect();
        let (single, second) = (text("A", 0), text("B", 1));
        let pair: Vec<Value> = single.iter().cloned().chain(second).collect();
        json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens})
    }
}

/// The most bytes of a piece that is looked at as a merge of two.
const LONGEST_PIECE: usize = 256;

/// `generation_config.json`: the tokens that begin and end a text.
pub(super) fn generation(config: &Map<String, Value>) -> Option<String> {
    let keys = ["bos_token_id", "eos_token_id", "pad_token_id"];
    let known: Map<String, Value> =
        keys.iter().filter_map(|key| Some(((*key).to_owned(), config.get(*key)?.clone()))).collect();
    (!known.is_empty()).then(|| super::pretty(&known))
}

/// `tokenizer.json`.
#[derive(Serialize)]
struct File<'a> {
    version: &'static str,
    truncation: (),
    padding: (),
    added_tokens: Vec<Value>,
    normalizer: Value,
    pre_tokenizer: Value,
    post_processor: Value,
    decoder: Value,
    model: Bpe<'a>,
}

#[derive(Serialize)]
struct Bpe<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    dropout: (),
    unk_token: Option<&'a str>,
    continuing_subword_prefix: (),
    end_of_word_suffix: (),
    fuse_unk: bool,
    byte_fallback: bool,
    ignore_merges: bool,
    vocab: Ids<'a>,
    merges: Vec<[&'a str; 2]>,
}

/// Tokens with their ids. Of tokens with the same text, the last counts.
struct Ids<'a>(&'a [String]);

impl Serialize for Ids<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (id, token) in self.0.iter().enumerate() {
            map.serialize_entry(token, &id)?;
        }
        map.end()
    }
}
