//! Hands out the tensors of a checkpoint by the names of the architecture's modules, and keeps a
//! record of which were used.

mod adapters;
mod beside;
mod copies;
mod part;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use planish_ir::weight::StoredRange;
use planish_ir::{DType, Origin, Weight, WeightSource};

use crate::checkpoint::config::Size;
use crate::checkpoint::quantized::{Dequantized, Layer, Quantization};
use crate::checkpoint::{CONFIG, multimodal};
use crate::{Architecture, Checkpoint, ModelError};

/// How many names a message about a missing tensor offers.
const SUGGESTIONS: usize = 3;

pub(crate) struct Tensors<'a> {
    checkpoint: &'a Checkpoint,
    /// The prefixes of the names of the base model, such as `bert.`, and of modules around it; none if it was saved alone.
    prefixes: Vec<String>,
    /// Parts of names, and what they may be instead ([`Architecture::renamed`]).
    renamed: &'static [(&'static str, &'static str)],
    /// Names as stored.
    used: BTreeSet<String>,
    quantization: Option<Quantization>,
    /// Weights of which no codes are kept, and why.
    lost_codes: Vec<(String, &'static str)>,
    /// The modules of adapters that were found: the place of the adapter, and its name for the module.
    adapted: BTreeSet<(usize, String)>,
    /// Names of the base model, with or without which checkpoints and adapters are saved.
    bases: Vec<String>,
    /// Whether the whole of a multimodal model is built.
    sees: bool,
}

impl<'a> Tensors<'a> {
    /// The tensors of a checkpoint of an architecture.
    pub(crate) fn new(
        checkpoint: &'a Checkpoint,
        architecture: &Architecture,
        quantization: Option<Quantization>,
    ) -> Self {
        let mut tensors = Self { sees: architecture.sees(), ..Self::empty(checkpoint, quantization) };
        match tensors.sees {
            true => tensors.turn_to(&[], architecture.renamed),
            false => tensors.turn_to_text(architecture),
        }
        tensors
    }

    fn empty(checkpoint: &'a Checkpoint, quantization: Option<Quantization>) -> Self {
        Self {
            checkpoint,
            prefixes: Vec::new(),
            renamed: &[],
            used: BTreeSet::new(),
            quantization,
            lost_codes: Vec::new(),
            adapted: BTreeSet::new(),
            bases: Vec::new(),
            sees: false,
        }
    }

    /// Takes the names that follow for those of an architecture, or of the text model of one.
    pub(crate) fn turn_to_text(&mut self, architecture: &Architecture) {
        let bases = [architecture.base].into_iter().chain(architecture.other_bases.iter().copied());
        let mut bases: Vec<String> = bases.map(|base| format!("{base}.")).collect();
        if self.checkpoint.whole().is_some() {
            let own = |whole: &&str| bases.iter().map(|base| format!("{whole}.{base}")).collect::<Vec<_>>();
            let nested: Vec<String> = multimodal::BASES.iter().flat_map(own).collect();
            let plain = multimodal::BASES.iter().map(|whole| format!("{whole}."));
            bases = nested.into_iter().chain(plain).chain(bases).collect();
        }
        self.set_bases(bases, architecture.renamed);
    }

    /// Takes the names that follow for those below some modules of a model that sees, which may itself be below `model`.
    pub(crate) fn turn_to(&mut self, modules: &[&str], renamed: &'static [(&'static str, &'static str)]) {
        let nested = modules.iter().map(|module| format!("model.{module}."));
        let plain = modules.iter().map(|module| format!("{module}."));
        self.set_bases(nested.chain(plain).chain(["model.".to_owned()]).collect(), renamed);
    }

    fn set_bases(&mut self, bases: Vec<String>, renamed: &'static [(&'static str, &'static str)]) {
        let is_there = |prefix: &&String| self.checkpoint.tensor_names().any(|name| name.starts_with(*prefix));
        self.prefixes = bases.iter().filter(is_there).cloned().collect();
        (self.bases, self.renamed) = (bases, renamed);
    }

    /// The prefix of the names of the base model, empty if it was saved alone.
    fn prefix(&self) -> &str {
        self.prefixes.first().map_or("", String::as_str)
    }

    /// The stored name of a tensor; of the weight of a quantized layer, the name that it would have.
    fn find(&self, name: &str) -> Option<String> {
        let is_there = |name: &str| self.checkpoint.tensor(name).is_some() || self.quantized_module(name).is_some();
        let stored = |name: String| is_there(&name).then_some(name);
        let any = |name: &str| {
            let prefixed = self.prefixes.iter().find_map(|prefix| stored(format!("{prefix}{name}")));
            prefixed.or_else(|| stored(name.to_owned()))
        };
        any(name).or_else(|| {
            let other = self.renamed(name);
            if other == name { None } else { any(&other) }
        })
    }

    /// The other name of a tensor, which may be the same.
    fn renamed(&self, name: &str) -> String {
        self.renamed.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to))
    }

    /// The names of the tensors that are stored in the place of one, where there are several.
    fn parts(&self, name: &str) -> Option<Vec<String>> {
        let other = self.renamed(name);
        let (before, rest) = other.split_once('{')?;
        let (parts, after) = rest.split_once('}')?;
        let parts: Vec<String> = parts.split(',').map(|part| format!("{before}{part}{after}")).collect();
        parts.iter().any(|part| self.contains(part)).then_some(parts)
    }

    /// Whether there is such a tensor.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// The stored name of the module whose weight is stored in quantized form, where it is.
    fn quantized_module<'n>(&self, stored: &'n str) -> Option<&'n str> {
        self.quantization.as_ref()?.module(self.checkpoint, stored)
    }

    /// Whether the weight of a linear layer is stored as [out, in] whatever the layer is: in GGUF files, and in quantized
    /// form.
    pub(crate) fn is_out_in(&self, name: &str) -> bool {
        let quantized = |stored: String| self.quantized_module(&stored).is_some();
        self.checkpoint.gguf().is_some() || self.find(name).is_some_and(quantized)
    }

    /// Whether weights of normalization that the transformers library stores less 1 are stored whole, as in GGUF files.
    pub(crate) fn has_whole_norms(&self) -> bool {
        self.checkpoint.gguf().is_some_and(|gguf| gguf.has_whole_norms())
    }

    /// The weights of which no codes are kept, and why; `None` where there is no such weight.
    pub(crate) fn lost_codes(&self) -> Option<&[(String, &'static str)]> {
        Some(self.lost_codes.as_slice()).filter(|lost| !lost.is_empty())
    }

    /// Records that the codes of weights that were taken are not kept, by the name of what was made of them.
    pub(crate) fn lose_codes(&mut self, name: &str, why: &'static str) {
        self.lost_codes.push((name.to_owned(), why));
    }

    /// The shape of a tensor, if it is there.
    pub(crate) fn shape(&self, name: &str) -> Option<&'a [usize]> {
        let (_, tensor) = self.checkpoint.tensor(&self.find(name)?)?;
        Some(&tensor.shape)
    }

    /// The length of a tensor's first axis, if it is there and has one.
    pub(crate) fn rows(&self, name: &str) -> Option<usize> {
        self.shape(name)?.first().copied()
    }

    /// A tensor of indices, as 64 bit integers.
    pub(crate) fn take_indices(&mut self, name: &str, shape: &[Size]) -> Result<(Weight, Origin), ModelError> {
        let found = self.find(name).and_then(|name| Some((self.checkpoint.tensor(&name)?, name)));
        let Some(((file, tensor), name)) = found else { return Err(self.missing(&[name])) };
        let wrong = |message| ModelError::Tensor { name: name.clone(), path: file.path().to_owned(), message };
        check_shape(&tensor.shape, shape).map_err(wrong)?;
        let Some(dtype @ (DType::I32 | DType::I64)) = tensor.element_type() else {
            return Err(wrong(format!("elements are {}, expected I32 or I64", tensor.dtype)));
        };
        let range = StoredRange { source: Arc::<crate::WeightFile>::clone(file), offset: tensor.offset };
        let weight = Weight::stored(dtype, tensor.shape.clone(), range).and_then(|weight| weight.cast(DType::I64));
        let weight = weight.ok_or_else(|| wrong("its size does not fit 64 bits".to_owned()))?;
        let origin = Origin::Tensor { file: file.name().into(), name: name.as_str().into() };
        self.used.insert(name);
        Ok((weight, origin))
    }

    /// The element type that a tensor is stored in, if it is there.
    pub(crate) fn dtype(&self, name: &str) -> Option<DType> {
        let (_, tensor) = self.checkpoint.tensor(&self.find(name)?)?;
        tensor.element_type()
    }

    /// The tensor under the first of several names that is there, as 32 bit floats, with what adapters add to it.
    pub(crate) fn take(&mut self, names: &[&str], shape: &[Size]) -> Result<(Weight, Origin), ModelError> {
        let (weight, origin) = self.take_stored(names, shape)?;
        match names.iter().find_map(|name| self.find(name)) {
            Some(name) => Ok((self.adapt(&name, weight)?, origin)),
            // What adapters add to the parts of a tensor is in them.
            None => Ok((weight, origin)),
        }
    }

    fn take_stored(&mut self, names: &[&str], shape: &[Size]) -> Result<(Weight, Origin), ModelError> {
        let Some(name) = names.iter().find_map(|name| self.find(name)) else {
            let parts = names.iter().find_map(|name| self.parts(name));
            return match parts {
                Some(parts) => self.take_joined(&parts, shape),
                None => Err(self.missing(names)),
            };
        };
        if let Some(module) = self.quantized_module(&name).map(str::to_owned) {
            return self.take_quantized(name, &module, shape);
        }
        let Some((file, tensor)) = self.checkpoint.tensor(&name) else { return Err(self.missing(names)) };
        let stored = self.checkpoint.stored_name(&name).to_owned();
        let wrong = |message| ModelError::Tensor { name: stored.clone(), path: file.path().to_owned(), message };
        let tensor = &*self.checkpoint.gguf().map_or(Cow::Borrowed(tensor), |gguf| gguf.shaped(tensor, shape));
        check_shape(&tensor.shape, shape).map_err(wrong)?;
        if let Some(gguf) = self.checkpoint.gguf() {
            let Dequantized { weight, loses_codes } =
                gguf.weight(file, tensor, &name, self.checkpoint.config()).map_err(wrong)?;
            let origin = Origin::Tensor { file: file.name().into(), name: stored.as_str().into() };
            self.lost_codes.extend(loses_codes.map(|why| (stored, why)));
            self.used.insert(name);
            return Ok((weight, origin));
        }
        let dtype = match tensor.element_type() {
            Some(dtype @ (DType::F32 | DType::F16 | DType::Bf16)) => dtype,
            _ => {
                return Err(wrong(format!(
                    "elements are {}, expected F32, F16 or BF16: save the model in one of these",
                    tensor.dtype
                )));
            }
        };
        let source: Arc<dyn WeightSource> = Arc::<crate::WeightFile>::clone(file);
        let range = StoredRange { source, offset: tensor.offset };
        let weight = Weight::stored(dtype, tensor.shape.clone(), range)
            .and_then(|weight| weight.cast(DType::F32))
            .ok_or_else(|| wrong("its size does not fit 64 bits".to_owned()))?;
        let origin = Origin::Tensor { file: file.name().into(), name: name.as_str().into() };
        self.used.insert(name);
        Ok((weight, origin))
    }

    /// Tensors of as many rows each, joined along their first axis; the origin is that of the first one.
    fn take_joined(&mut self, parts: &[String], shape: &[Size]) -> Result<(Weight, Origin), ModelError> {
        let mut of_part = shape.to_vec();
        if let Some(rows) = of_part.first_mut() {
            if !rows.value.is_multiple_of(parts.len()) {
                return Err(ModelError::Tensor {
                    name: parts.join(", "),
                    path: self.checkpoint.weights_path().to_owned(),
                    message: format!("{rows} rows are not those of {} tensors of one size", parts.len()),
                });
            }
            *rows = Size::derived(rows.value / parts.len().max(1), rows.key);
        }
        let taken = parts.iter().map(|part| self.take(&[part], &of_part)).collect::<Result<Vec<_>, _>>()?;
        let (weights, origins): (Vec<Weight>, Vec<Origin>) = taken.into_iter().unzip();
        let names: Vec<&str> = parts.iter().map(String::as_str).collect();
        let joined = Weight::concat(&weights, 0).filter(|joined| check_shape(joined.shape(), shape).is_ok());
        joined.zip(origins.into_iter().next()).ok_or_else(|| self.missing(&names))
    }

    /// The weight of a quantized module, under the name that it would have.
    fn take_quantized(&mut self, name: String, module: &str, shape: &[Size]) -> Result<(Weight, Origin), ModelError> {
        let mut layer = Layer::new(self.checkpoint, module);
        let found = self.quantization.as_ref().map(|quantization| quantization.weight(&mut layer)).transpose()?;
        let taken = layer.into_taken();
        let first = taken.first().and_then(|name| self.checkpoint.tensor(name));
        let (Some(Dequantized { weight, loses_codes }), Some((file, _))) = (found, first) else {
            return Err(self.missing(&[&name]));
        };
        check_shape(weight.shape(), shape).map_err(|message| ModelError::Tensor {
            name: name.clone(),
            path: file.path().to_owned(),
            message,
        })?;
        let origin = Origin::Tensor { file: file.name().into(), name: name.as_str().into() };
        self.lost_codes.extend(loses_codes.map(|why| (name, why)));
        self.used.extend(taken);
        Ok((weight, origin))
    }

    /// An error about a module of a sentence model, by its folder; the empty one is that of the model.
    pub(crate) fn of_module(&self, module: &str, message: String) -> ModelError {
        let path = match module {
            "" => self.checkpoint.config_path(),
            _ => self.checkpoint.root().join(module).join(CONFIG),
        };
        ModelError::File { path, message }
    }

    /// The error for a tensor that is under none of some names.
    pub(crate) fn missing(&self, names: &[&str]) -> ModelError {
        let name = names.first().copied().unwrap_or_default();
        // Modules of the base model are below the prefix, heads beside it.
        let sibling = format!("{}{}.", self.prefix(), name.split('.').next().unwrap_or_default());
        let in_base = self.checkpoint.tensor_names().any(|name| name.starts_with(&sibling));
        let wanted = if in_base { format!("{}{name}", self.prefix()) } else { name.to_owned() };
        let mut scored: Vec<(usize, &str)> =
            self.checkpoint.tensor_names().map(|name| (similarity(name, &wanted), name)).collect();
        scored.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(b.1)));
        let similar: Vec<String> =
            scored.iter().filter(|s| s.0 > 1).take(SUGGESTIONS).map(|s| format!("`{}`", s.1)).collect();
        let hint = match similar.as_slice() {
            [] => String::new(),
            names => format!("; similar names there: {}", names.join(", ")),
        };
        ModelError::MissingTensor { name: wanted, path: self.checkpoint.weights_path().to_owned(), hint }
    }

    /// Takes a tensor, or those of a module, as used: those of a head that the task does not need.
    pub(crate) fn leave(&mut self, module: &str) {
        let modules = [module.to_owned(), self.renamed(module)];
        let is_of = |name: &&str| {
            let below = |module: &String| {
                let rest = name.strip_prefix(module.as_str()).filter(|_| !module.is_empty());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            modules.iter().any(below)
        };
        let bare = |name: &str| {
            self.prefixes.iter().find_map(|prefix| name.strip_prefix(prefix.as_str())).unwrap_or(name).to_owned()
        };
        let all = self.checkpoint.tensor_names().filter(|name| is_of(name) || is_of(&bare(name).as_str()));
        self.used.extend(all.map(str::to_owned));
    }

    /// Stored names that were not used and do not begin with one of `known` (prefixes
    /// aside), or end with one that begins with a dot.
    pub(crate) fn unused(&self, known: &[&str]) -> Vec<&'a str> {
        let expected = |name: &str| {
            let name = self.prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
            known.iter().any(|k| if k.starts_with('.') { name.ends_with(k) } else { name.starts_with(k) })
        };
        let is_other = |name: &&str| {
            !self.used.contains(*name)
                && !expected(name)
                && !self.checkpoint.is_of_module(name)
                && self.is_of_text(name)
        };
        self.checkpoint.tensor_names().filter(is_other).collect()
    }
}

/// Refuses another shape than the configuration says.
fn check_shape(found: &[usize], shape: &[Size]) -> Result<(), String> {
    if found.iter().eq(shape.iter().map(|size| &size.value)) {
        return Ok(());
    }
    let expected: Vec<usize> = shape.iter().map(|size| size.value).collect();
    let reasons: Vec<String> = shape.iter().map(Size::to_string).collect();
    Err(format!("the shape is {found:?}, expected {expected:?} ({})", reasons.join(", ")))
}

/// How many dot-separated parts two names share at their beginning and end.
fn similarity(a: &str, b: &str) -> usize {
    let same = |(x, y): &(&str, &str)| x == y;
    let head = a.split('.').zip(b.split('.')).take_while(same).count();
    let tail = a.rsplit('.').zip(b.rsplit('.')).take_while(same).count();
    head + tail
}
