//! GGUF files: one file, or several parts, have the configuration, the tokenizer and the tensors of a model, as llama.cpp writes it.

pub(crate) mod config;
mod doubts;
mod header;
mod keys;
mod kind;
pub(crate) mod latent;
mod metadata;
pub(crate) mod parts;
mod rope;
pub(crate) mod split;
mod tokenizer;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use planish_ir::weight::{Channels, Packing, StoredRange};
use planish_ir::{DType, Weight, WeightSource};
use serde_json::{Map, Value};

use self::config::Tensors;
pub(crate) use self::kind::{Kind, Names, Pair};
use self::tokenizer::Vocabulary;
use crate::ModelError;
use crate::checkpoint::config::{MAX_SIZE, Size};
use crate::checkpoint::quantized::Dequantized;
use crate::checkpoint::safetensors::{StoredTensor, WeightFile};

/// The ending of the files.
pub(crate) const ENDING: &str = ".gguf";

/// The factors of the frequencies of the rotary embedding.
const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Opens a file for its tensors.
pub(crate) fn open_file(path: &Path) -> Result<WeightFile, ModelError> {
    header::open(path).map(|(file, _)| file)
}

/// What a GGUF file says besides its tensors.
#[derive(Debug)]
pub(crate) struct Gguf {
    kind: &'static Kind,
    /// The names of tensors in the files, and which file has each, by those in a checkpoint.
    names: BTreeMap<String, (String, usize)>,
    vocabulary: Option<Vocabulary>,
    /// What was ignored or assumed.
    pub(crate) warnings: Vec<String>,
}

/// An opened model: its tensors by their names in the file, the configuration of its model, and the rest.
pub(crate) struct Opened {
    /// One, or the parts of a model in several files.
    pub(crate) files: Vec<WeightFile>,
    pub(crate) config: Map<String, Value>,
    pub(crate) gguf: Gguf,
}

impl Gguf {
    /// Opens a file of one of some architectures. Its header is read and checked; of the tensors, only the factors of the rotary
    /// embedding are read.
    ///
    /// # Errors
    /// When it cannot be read, its header does not describe it, or its architecture is not known.
    pub(crate) fn open(path: &Path, kinds: &[&'static Kind]) -> Result<Opened, ModelError> {
        let (files, metadata) = split::open(path)?;
        let bad = |message| ModelError::File { path: path.to_owned(), message };
        let kind = Kind::of(&metadata, kinds).map_err(bad)?;
        let mut names = BTreeMap::new();
        let all = files.iter().enumerate().flat_map(|(at, file)| file.tensors().keys().map(move |name| (at, name)));
        for (at, stored) in all.filter(|(_, name)| *name != ROPE_FACTORS) {
            let name = kind.names.checkpoint(stored).unwrap_or_else(|| stored.clone());
            if let Some((other, _)) = names.insert(name, (stored.clone(), at)) {
                return Err(bad(format!("tensors `{other}` and `{stored}` are the same of the model")));
            }
        }
        let find = |name: &str| files.iter().find_map(|file| Some((file, file.tensors().get(name)?)));
        let Some(&[vocabulary, _]) = find("token_embd.weight").map(|(_, tensor)| tensor.shape.as_slice()) else {
            return Err(bad("there is no matrix `token_embd.weight`: the file has no embeddings of tokens".to_owned()));
        };
        let has = |name: &str| find(name).is_some();
        let rope_factors = match find(ROPE_FACTORS) {
            Some((file, tensor)) => Some(rope_factors(file, tensor).map_err(bad)?),
            None => None,
        };
        let tensors = Tensors { vocabulary, has: &has, rope_factors };
        let (config, ignored) = config::config(kind, &metadata, &tensors).map_err(bad)?;
        let mut warnings = Vec::new();
        if !ignored.is_empty() {
            warnings.push(format!("{}: ignored metadata: {}", path.display(), ignored.join(", ")));
        }
        let doubts = doubts::doubts(kind, &metadata, vocabulary);
        warnings.extend(doubts.into_iter().map(|doubt| format!("{}: {doubt}", path.display())));
        let vocabulary = match Vocabulary::read(&metadata, vocabulary) {
            Ok((vocabulary, assumed)) => {
                warnings.extend(assumed.map(|assumed| format!("{}: {assumed}", path.display())));
                Some(vocabulary)
            }
            Err(why) => {
                warnings.push(format!(
                    "{}: there will be no tokenizer: {why}; put the tokenizer.json of the model that the file was made from into \
                     the artifact",
                    path.display()
                ));
                None
            }
        };
        Ok(Opened { files, config, gguf: Self { kind, names, vocabulary, warnings } })
    }

    /// The name in the file of a tensor.
    pub(crate) fn stored_name(&self, name: &str) -> Option<&str> {
        self.names.get(name).map(|(stored, _)| stored.as_str())
    }

    /// The names of the tensors in a checkpoint, and which file has each.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&String, usize)> {
        self.names.iter().map(|(name, (_, file))| (name, *file))
    }

    /// A tensor in the shape that an architecture has it in: GGML drops dimensions of 1 in front of others.
    pub(crate) fn shaped<'t>(&self, tensor: &'t StoredTensor, shape: &[Size]) -> Cow<'t, StoredTensor> {
        let wanted = || shape.iter().map(|size| size.value);
        let after_ones = |shape: &[usize]| shape.iter().copied().skip_while(|size| *size == 1).collect::<Vec<_>>();
        if after_ones(&tensor.shape) == after_ones(&wanted().collect::<Vec<_>>()) {
            return Cow::Owned(StoredTensor { shape: wanted().collect(), ..tensor.clone() });
        }
        Cow::Borrowed(tensor)
    }

    /// Whether normalization weights include the 1 that Gemma adds.
    pub(crate) fn has_whole_norms(&self) -> bool {
        self.kind.whole_norms
    }

    /// The files of a checkpoint folder that the file stands for, besides weights.
    pub(crate) fn companions(&self, config: &Map<String, Value>) -> Vec<(&'static str, String)> {
        let mut files = vec![("config.json", pretty(config))];
        if let Some(vocabulary) = &self.vocabulary {
            files.extend(vocabulary.files(config));
        }
        files.extend(tokenizer::generation(config).map(|text| ("generation_config.json", text)));
        files
    }

    /// A tensor by its name in a checkpoint, as float32.
    pub(crate) fn weight(
        &self,
        file: &Arc<WeightFile>,
        tensor: &StoredTensor,
        name: &str,
        config: &Map<String, Value>,
    ) -> Result<Dequantized, String> {
        let rows = self.row_order(tensor, name, config)?;
        let too_large = || "its size does not fit 64 bits".to_owned();
        let stored = |dtype: DType, shape: &[usize]| {
            let source: Arc<dyn WeightSource> = Arc::<WeightFile>::clone(file);
            let weight = Weight::stored(dtype, shape.to_vec(), StoredRange { source, offset: tensor.offset })?;
            match &rows {
                Some(rows) => weight.gather(0, rows),
                None => Some(weight),
            }
        };
        let shape = tensor.shape.as_slice();
        let Some(block) = header::block(&tensor.dtype) else {
            let weight = tensor.element_type().and_then(|dtype| stored(dtype, shape)).and_then(|w| w.cast(DType::F32));
            return weight.map(|weight| Dequantized { weight, loses_codes: None }).ok_or_else(too_large);
        };
        let (leading, row) = shape.split_last().map_or((1, 1), |(row, leading)| (leading.iter().product(), *row));
        let packed = stored(DType::U8, &[leading, row / block.elements() * block.bytes()]).ok_or_else(too_large)?;
        let parts = std::slice::from_ref(&packed);
        let (Some(codes), Some((scales, each))) = (block.codes(), block.scales()) else {
            let weight = Weight::unpack(parts, Packing::Numbers(block), DType::F32, shape).ok_or_else(too_large)?;
            let why = "blocks of their types (Q4_1, Q5_1, Q2_K, Q4_K, Q5_K) have minima that are no multiples of their scales";
            return Ok(Dequantized { weight, loses_codes: Some(why) });
        };
        let size = block.elements() / each;
        let mut blocks = shape.to_vec();
        if let Some(last) = blocks.last_mut() {
            *last = row / size;
        }
        let codes = Weight::unpack(parts, Packing::Codes(block), codes, shape);
        let scales = Weight::unpack(parts, Packing::Scales(block), scales, &blocks).and_then(|w| w.cast(DType::F32));
        let weight = codes.zip(scales).and_then(|(codes, scales)| {
            codes.dequantize(Channels::Blocks { axis: shape.len().saturating_sub(1), size }, &scales, None)
        });
        weight.map(|weight| Dequantized { weight, loses_codes: None }).ok_or_else(too_large)
    }

    /// The rows of the file in the order of the checkpoint, where that differs: those of queries and keys that are pairs, and those
    /// of queries, keys and values, which checkpoints have side by side for each head.
    fn row_order(
        &self,
        tensor: &StoredTensor,
        name: &str,
        config: &Map<String, Value>,
    ) -> Result<Option<Vec<usize>>, String> {
        let module = name.strip_suffix(".weight").or(name.strip_suffix(".bias")).unwrap_or(name);
        let number =
            |key: &str| config.get(key).and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok());
        let rows = tensor.shape.first().copied().unwrap_or(0);
        let key = match module.rsplit('.').next() {
            Some("query_key_value") => {
                let heads = number("num_attention_heads").unwrap_or(0);
                let size = rows
                    .checked_div(heads.saturating_mul(3))
                    .filter(|size| size * heads * 3 == rows && rows <= MAX_SIZE);
                let size = size.ok_or_else(|| {
                    format!("it has {rows} rows, which are no queries, keys and values of {heads} heads")
                })?;
                let place = |row: usize| (row / size % 3 * heads + row / size / 3) * size + row % size;
                return Ok(Some((0..rows).map(place).collect()));
            }
            Some("q_proj") if self.kind.pairs => "num_attention_heads",
            Some("k_proj") if self.kind.pairs => "num_key_value_heads",
            _ => return Ok(None),
        };
        let heads = number(key).unwrap_or(0);
        let twice = heads.checked_mul(2).filter(|twice| *twice > 0 && rows.is_multiple_of(*twice) && rows <= MAX_SIZE);
        let Some(twice) = twice else {
            return Err(format!("it has {rows} rows, which are no pairs of {heads} heads"));
        };
        let half = rows / twice;
        let place = |row: usize| {
            let (head, within) = (row / (2 * half), row % (2 * half));
            head * 2 * half + within % half * 2 + within / half
        };
        Ok(Some((0..rows).map(place).collect()))
    }
}

/// The factors that divide the frequencies of the rotary embedding.
fn rope_factors(file: &WeightFile, tensor: &StoredTensor) -> Result<Vec<f32>, String> {
    let count = tensor.shape.iter().product::<usize>();
    if tensor.dtype != "F32" || tensor.shape.len() != 1 || count > MAX_SIZE {
        return Err(format!("`{ROPE_FACTORS}` is {}{:?}, expected a list of F32", tensor.dtype, tensor.shape));
    }
    let mut bytes = vec![0; count * 4];
    file.read_at(tensor.offset, &mut bytes).map_err(|e| format!("cannot read `{ROPE_FACTORS}`: {e}"))?;
    let factors: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    match factors.iter().all(|factor| factor.is_finite() && *factor > 0.0) {
        true => Ok(factors),
        false => Err(format!("`{ROPE_FACTORS}` has a number that is not positive")),
    }
}

fn pretty(object: &Map<String, Value>) -> String {
    // Maps of texts and numbers have a text.
    serde_json::to_string_pretty(object).unwrap_or_default() + "\n"
}
