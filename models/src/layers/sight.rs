//! What models that see have in common: a decoder of vectors, of which some are those of tokens and others those of places of images.

use planish_ir::ops::{Binary, BinaryKind, Cast, Concat, CumSum, Expand, Iota, Select, Slice, Split, Unary, UnaryKind};
use planish_ir::{DType, Dim, Origin, PartRole, Shape, ValueId, Weight};

use crate::architecture::Properties;
use crate::checkpoint::config::{Config, Size};
use crate::layers::attention::Scores;
use crate::layers::blocks::{self, Settings};
use crate::layers::builder::{BATCH, Builder, PAST, SEQUENCE};
use crate::layers::experts::LEAST;
use crate::layers::patches::dim;
use crate::names;
use crate::{ImagePlaces, ModelError, PlacesForm, Task};

/// How a decoder reads vectors.
#[derive(Clone, Copy)]
pub(crate) struct Sight {
    /// Which tokens see each other whatever their order.
    together: Seen,
    form: Form,
    /// The features of a vector, once they are known.
    hidden: Option<Size>,
}

/// What a decoder takes besides what others take.
#[derive(Clone, Copy, Default)]
pub(crate) struct Form {
    /// Whether positions have three coordinates.
    pub(crate) coordinates: bool,
    /// How many layers get what they add for places of images, which vectors have after their own features.
    pub(crate) deep: usize,
}

impl Sight {
    /// Whether positions have three coordinates.
    pub(crate) fn has_coordinates(self) -> bool {
        self.form.coordinates
    }
}

/// Tokens of a run that see each other whatever their order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// None.
    InOrder,
    /// Those of an image: neighbours of type 1, as `transformers/models/gemma3` has it.
    Images,
    /// Those of type 0, which are the prompt, as `transformers/models/paligemma` has it.
    Prompt,
}

/// The part that makes vectors of tokens and the decoder of vectors, by the architecture of the text model. The result has the features
/// of a vector.
///
/// # Errors
/// When the architecture reads token ids only.
pub(crate) fn text(b: &mut Builder<'_>, together: Seen) -> Result<(Properties, Size), ModelError> {
    text_in_form(b, together, Form::default())
}

/// The same of a decoder of some form.
pub(crate) fn text_in_form(b: &mut Builder<'_>, together: Seen, form: Form) -> Result<(Properties, Size), ModelError> {
    let Some((config, architecture)) = b.text else { unreachable!("a model that sees has a text model") };
    let whole = std::mem::replace(&mut b.config, config);
    b.tensors.turn_to_text(architecture);
    b.pad_token_id = architecture.pad_token_id;
    b.sight = Some(Sight { together, form, hidden: None });
    let properties = (architecture.build)(b, Task::TextGeneration)?;
    let Some(hidden) = b.sight.take().and_then(|sight| sight.hidden) else {
        return Err(config.error(format!(
            "`model_type` is {}, which reads token ids only: a model that sees takes a decoder such as llama or qwen2",
            architecture.model_type
        )));
    };
    b.finish_as(names::DECODER_OF_VECTORS, PartRole::Model);
    b.config = whole;
    Ok((properties, hidden))
}

/// The token that stands for a place of an image.
pub(crate) struct PlaceToken(i64);

impl PlaceToken {
    /// What prompts write for an image.
    pub(crate) fn written(self, form: PlacesForm) -> ImagePlaces {
        ImagePlaces { token: self.0, form }
    }
}

/// That of a configuration, under the first of some keys that it has.
///
/// # Errors
/// When it is no id.
pub(crate) fn token(config: &Config<'_>, keys: &[&'static str], usual: i64) -> Result<PlaceToken, ModelError> {
    id(config, keys, usual).map(PlaceToken)
}

/// The id of a token, under the first of some keys that a configuration has.
///
/// # Errors
/// When it is no id.
pub(crate) fn id(config: &Config<'_>, keys: &[&'static str], usual: i64) -> Result<i64, ModelError> {
    let found: Vec<_> = keys.iter().map(|key| (*key, config.get(key))).collect();
    let Some((key, value)) = found.into_iter().find_map(|(key, value)| Some((key, value?))) else { return Ok(usual) };
    value.as_i64().filter(|id| *id >= 0).ok_or_else(|| config.unexpected(key, value, "the id of a token"))
}

/// The keys of the token that stands for a place of an image.
pub(crate) const TOKEN_KEYS: &[&str] = &["image_token_id", "image_token_index"];

/// Adds the part that makes vectors of tokens, if the decoder reads vectors: their features.
pub(super) fn embedder(b: &mut Builder<'_>, s: &Settings) -> Result<Option<Size>, ModelError> {
    let Some(sight) = &mut b.sight else { return Ok(None) };
    sight.hidden = Some(s.hidden);
    let deep = sight.form.deep;
    if s.layer_inputs.is_some() {
        return Err(b.config.error("layers read token ids too, which is not supported in a model that sees"));
    }
    let ids = b.input(names::INPUT_IDS, s.vocabulary.signed())?;
    let mut vectors = blocks::embed(b, s, ids)?;
    let size = Size::derived(
        s.hidden.value * (1 + deep),
        "hidden_size, once more for each layer that gets features of images",
    );
    if deep > 0 {
        let zero = b.graph.add_weight("deep.zero", scalar(0.0), Origin::Unknown);
        let shape = [Dim::symbol(BATCH), Dim::symbol(SEQUENCE), dim(size.value - s.hidden.value)];
        let none = b.emit(Expand { x: zero, shape: Shape::new(shape) }, "deep.none")?;
        vectors = b.emit(Concat { parts: vec![vectors, none], axis: 2 }, "deep")?;
    }
    b.give(names::VECTORS.1, vectors);
    b.finish(PartRole::Embedder);
    Ok(Some(size))
}

/// What the first layer takes of the vectors that a decoder reads, and what is added after each of the first layers, all
/// [batch_size, sequence_length, hidden].
pub(super) fn vectors(b: &mut Builder<'_>, x: ValueId, hidden: Size) -> Result<(ValueId, Vec<ValueId>), ModelError> {
    let deep = b.sight.map_or(0, |sight| sight.form.deep);
    if deep == 0 {
        return Ok((x, Vec::new()));
    }
    let parts = b.emit_all(Split { x, axis: 2, sizes: vec![hidden.value; deep + 1] }, "deep.features")?;
    match parts.split_first() {
        Some((first, deep)) => Ok((*first, deep.to_vec())),
        None => unreachable!("a split has as many results as sizes"),
    }
}

/// Ends the part of images, which comes first: `x` is [images, places, hidden], the output [images * places, hidden].
pub(crate) fn finish(b: &mut Builder<'_>, x: ValueId, hidden: Size) -> Result<(), ModelError> {
    let shape = b.graph.ty(x).shape.clone();
    let rows = product(b, &shape[0], &shape[1])?;
    let flat = b.reshape(x, [rows, hidden.signed().into()], names::IMAGE_FEATURES.0)?;
    b.give(names::IMAGE_FEATURES, flat);
    b.finish(PartRole::VisionEncoder);
    b.put_first();
    Ok(())
}

/// So many things of each of so many, of images.
///
/// # Errors
/// When they are more than sizes are written in.
pub(crate) fn product(b: &Builder<'_>, count: &Dim, of_each: &Dim) -> Result<Dim, ModelError> {
    count.checked_mul(of_each).ok_or_else(|| b.config.error("images have more places than 64 bits count"))
}

/// Tokens that see each other whatever their order, for the attention of all layers.
pub(crate) struct Together {
    seen: Seen,
    /// Which keys are after a query: bool[sequence_length, keys].
    later: ValueId,
    /// Which keys are of no block with a query: bool[batch_size, 1, sequence_length, keys].
    other: ValueId,
    /// How far keys are before queries: i64[sequence_length, keys].
    distance: ValueId,
    /// What is added to scores of layers with windows of some sizes, and without: [batch_size, 1, sequence_length, keys].
    biases: Vec<(Option<usize>, ValueId)>,
}

const MODULE: &str = "together";

fn at(name: &str) -> String {
    format!("{MODULE}.{name}")
}

impl Together {
    /// Adds the input that says which tokens are of images or of a prompt, if a decoder reads such vectors.
    pub(super) fn new(b: &mut Builder<'_>, keys: Dim) -> Result<Option<Self>, ModelError> {
        let Some(Sight { together: seen, .. }) = b.sight.filter(|sight| sight.together != Seen::InOrder) else {
            return Ok(None);
        };
        let types = b.input(names::TOKEN_TYPES, 2)?;
        let blocks = match seen {
            Seen::InOrder | Seen::Images => images(b, types)?,
            Seen::Prompt => {
                let one = b.graph.add_scalar(&at("one"), DType::I64, 1.0);
                b.binary(BinaryKind::Sub, [one, types], &at("blocks"))?
            }
        };
        let (rows, tokens, one) = (Dim::symbol(BATCH), Dim::symbol(SEQUENCE), Dim::constant(1));
        let zero = b.graph.add_scalar(&at("none"), DType::I64, 0.0);
        let shape = Shape::new([rows.clone(), Dim::symbol(PAST)]);
        let past = b.emit(Expand { x: zero, shape }, &at("past"))?;
        let of_keys = b.emit(Concat { parts: vec![past, blocks], axis: 1 }, &at("keys"))?;
        let of_keys = b.reshape(of_keys, [rows.clone(), one.clone(), one.clone(), keys.clone()], &at("of_keys"))?;
        let of_queries = b.reshape(blocks, [rows, one.clone(), tokens.clone(), one.clone()], &at("of_queries"))?;
        let equal = b.binary(BinaryKind::Equal, [of_queries, of_keys], &at("equal"))?;
        let in_block = b.binary(BinaryKind::Greater, [of_queries, zero], &at("in_block"))?;
        let same = b.binary(BinaryKind::And, [equal, in_block], &at("same"))?;
        let other = b.emit(Unary { kind: UnaryKind::Not, x: same }, &at("other"))?;
        let key = b.emit(Iota { dtype: DType::I64, length: keys.clone() }, &at("key"))?;
        let query = b.emit(Slice { x: key, axis: 0, start: Dim::symbol(PAST), end: keys }, &at("query"))?;
        let query = b.reshape(query, [tokens, one], &at("query.column"))?;
        let distance = b.binary(BinaryKind::Sub, [query, key], &at("distance"))?;
        let later = b.binary(BinaryKind::Greater, [zero, distance], &at("later"))?;
        Ok(Some(Self { seen, later, other, distance, biases: Vec::new() }))
    }

    /// Scores of an attention in no order, with what is added to them in place of order and window.
    pub(super) fn scores(&mut self, b: &mut Builder<'_>, scores: Scores) -> Result<Scores, ModelError> {
        let found = self.biases.iter().find(|(window, _)| *window == scores.window).map(|(_, bias)| *bias);
        let bias = match found {
            Some(bias) => bias,
            None => {
                let bias = self.bias(b, scores.window)?;
                self.biases.push((scores.window, bias));
                bias
            }
        };
        let bias = scores.bias.map_or(Ok(bias), |other| b.add(other, bias, &at("add")))?;
        Ok(Scores { bias: Some(bias), window: None, ..scores })
    }

    /// The least number where a key is hidden from a query, and 0 elsewhere. A window hides tokens of the same image too, but not those of
    /// the same prompt.
    fn bias(&self, b: &mut Builder<'_>, window: Option<usize>) -> Result<ValueId, ModelError> {
        let name = window.map_or(MODULE.to_owned(), |_| at("window"));
        let within = |name: &str, part: &str| format!("{name}.{part}");
        let far = match window {
            None => None,
            Some(window) => {
                // Exact: windows are below 2^53.
                let end = b.graph.add_scalar(&within(&name, "size"), DType::I64, window as f64);
                Some(b.binary(BinaryKind::GreaterOrEqual, [self.distance, end], &within(&name, "far"))?)
            }
        };
        let (mut hidden, after) = (self.later, within(&name, "hidden"));
        if let Some(far) = far.filter(|_| self.seen == Seen::Prompt) {
            hidden = b.binary(BinaryKind::Or, [hidden, far], &within(&name, "unordered"))?;
        }
        let mut condition = b.binary(BinaryKind::And, [hidden, self.other], &after)?;
        if let Some(far) = far.filter(|_| self.seen == Seen::Images) {
            condition = b.binary(BinaryKind::Or, [condition, far], &within(&name, "or_far"))?;
        }
        let least = b.graph.add_weight(&format!("{name}.least"), scalar(LEAST), Origin::Unknown);
        let zero = b.graph.add_weight(&format!("{name}.zero"), scalar(0.0), Origin::Unknown);
        b.emit(Select { condition, a: least, b: zero }, &format!("{name}.bias"))
    }
}

fn scalar(number: f64) -> Weight {
    Weight::scalar(DType::F32, number)
}

/// The number of the image that each token is of, from 1 on, and 0 for other tokens: i64[batch_size, sequence_length]. `types` has 1 for
/// tokens of images.
fn images(b: &mut Builder<'_>, types: ValueId) -> Result<ValueId, ModelError> {
    let (rows, tokens, one) = (Dim::symbol(BATCH), Dim::symbol(SEQUENCE), Dim::constant(1));
    let number = b.graph.add_scalar(&at("one"), DType::I64, 1.0);
    let is_image = b.binary(BinaryKind::Equal, [types, number], &at("is_image"))?;
    let marks = b.emit(Cast { x: is_image, to: DType::I64 }, &at("marks"))?;
    let none = b.graph.add_scalar(&at("before_first"), DType::I64, 0.0);
    let first = b.emit(Expand { x: none, shape: Shape::new([rows, one]) }, &at("first"))?;
    let longer = b.emit(Concat { parts: vec![first, marks], axis: 1 }, &at("longer"))?;
    let before = b.emit(Slice { x: longer, axis: 1, start: Dim::constant(0), end: tokens }, &at("before"))?;
    let is_first = b.binary(BinaryKind::Greater, [marks, before], &at("is_first"))?;
    let starts = b.emit(Cast { x: is_first, to: DType::I64 }, &at("starts"))?;
    let count = b.emit(CumSum { x: starts, axis: 1 }, &at("count"))?;
    b.emit(Binary { kind: BinaryKind::Mul, a: count, b: marks }, &at("blocks"))
}
