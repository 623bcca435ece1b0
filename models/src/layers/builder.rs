//! Builds a graph module by module. Values take the module's path in the checkpoint as their
//! name, without the base model's prefix; weights that of their tensor.

use std::collections::HashMap;
use std::sync::Arc;

use planish_ir::ops::{Binary, BinaryKind, Embedding, Flag, Linear, Reshape, Split, Transpose};
use planish_ir::{DType, Dim, Graph, InputRole, Op, Origin, OutputRole, PartRole, Shape, TensorType, ValueId, Weight};

use crate::checkpoint::config::{Config, Size};
use crate::checkpoint::quantized::Quantization;
use crate::checkpoint::tensors::Tensors;
use crate::layers::pictures::PictureSteps;
use crate::layers::sight::Sight;
use crate::layers::sounds::SoundSteps;
use crate::names::{self, Named};
use crate::{Architecture, Checkpoint, IdRange, LatentCache, ModelError, Part, Towers};

pub(crate) use crate::names::{BATCH, CHOICES, PAST, SEQUENCE};

pub(crate) struct Builder<'a> {
    pub(crate) graph: Graph,
    pub(crate) config: &'a Config<'a>,
    pub(crate) tensors: Tensors<'a>,
    pub(crate) warnings: Vec<String>,
    /// The id of padding where the configuration does not name one.
    pub(crate) pad_token_id: Option<i64>,
    /// Whether a pooler that the model has is left out, as no output reads it.
    pub(crate) is_bare: bool,
    /// Whether each row of inputs is some texts of which one is chosen.
    pub(crate) chooses: bool,
    /// The configuration and the architecture of the text model of a model that sees.
    pub(crate) text: Option<(&'a Config<'a>, &'static Architecture)>,
    /// How the decoder that is being built reads vectors, where it does.
    pub(crate) sight: Option<Sight>,
    /// The symbol of the number of images.
    pub(crate) images: &'static str,
    /// What becomes of pictures in the graph; absent where its input is pixels.
    pub(crate) pictures: Option<PictureSteps>,
    /// Whether the graph processes pictures.
    pub(crate) has_pictures: bool,
    /// What becomes of recordings in the graph; absent where its input is samples or features.
    pub(crate) sounds: Option<Arc<SoundSteps>>,
    /// Whether the graph processes recordings.
    pub(crate) has_sounds: bool,
    /// What the cache of latent attention is asked to have.
    pub(crate) latent_cache: Option<LatentCache>,
    /// The graphs that a model of images and texts is asked to have.
    pub(crate) towers: Option<Towers>,
    /// Whether the model has such a cache.
    pub(crate) has_latents: bool,
    /// Whether an encoder is asked to give the keys and values that its decoder attends to.
    pub(crate) encoder_gives_keys: bool,
    /// The ids that each input of integers takes, in the order of the inputs.
    pub(crate) id_ranges: Vec<IdRange>,
    /// The parts of the model that are built.
    pub(super) parts: Vec<Part>,
    /// Weights of the graph by name: one that is used twice stays one.
    pub(super) weights: HashMap<String, ValueId>,
}

impl<'a> Builder<'a> {
    /// An empty graph of a checkpoint of an architecture.
    pub(crate) fn new(
        checkpoint: &'a Checkpoint,
        config: &'a Config<'a>,
        architecture: &Architecture,
        quantization: Option<Quantization>,
    ) -> Self {
        let tensors = Tensors::new(checkpoint, architecture, quantization);
        Self::of(Graph::new(checkpoint.name()), config, tensors, architecture)
    }

    /// A builder of a graph of an architecture whose tensors are at hand.
    pub(crate) fn of(graph: Graph, config: &'a Config<'a>, tensors: Tensors<'a>, architecture: &Architecture) -> Self {
        Self {
            graph,
            config,
            tensors,
            warnings: Vec::new(),
            pad_token_id: architecture.pad_token_id,
            is_bare: false,
            chooses: false,
            text: None,
            sight: None,
            images: BATCH,
            pictures: None,
            has_pictures: false,
            sounds: None,
            has_sounds: false,
            latent_cache: None,
            towers: None,
            has_latents: false,
            encoder_gives_keys: false,
            id_ranges: Vec::new(),
            parts: Vec::new(),
            weights: HashMap::new(),
        }
    }

    /// Ends a part of the model; the next begins with an empty graph.
    pub(crate) fn finish(&mut self, role: PartRole) {
        self.finish_as(names::part(role).unwrap_or_else(|| unreachable!("the parts that models have are named")), role);
    }

    /// Ends a part with a name that is not the usual one of its role.
    pub(crate) fn finish_as(&mut self, name: &'static str, role: PartRole) {
        self.graph.interface.role = role;
        let empty = Graph::new(&self.graph.name);
        let graph = std::mem::replace(&mut self.graph, empty);
        self.parts.push(Part { name, graph, id_ranges: std::mem::take(&mut self.id_ranges) });
        self.weights.clear();
    }

    /// Puts the part that was ended last before all others.
    pub(crate) fn put_first(&mut self) {
        self.parts.rotate_right(1);
    }

    /// Whether no part has been ended: then there is one, the whole model.
    pub(crate) fn is_whole(&self) -> bool {
        self.parts.is_empty()
    }

    /// The parts of the model: those that were finished, or the whole of it.
    pub(crate) fn into_parts(mut self) -> Vec<Part> {
        if self.parts.is_empty() {
            self.finish(PartRole::Model);
        }
        self.parts
    }

    /// The number of texts in a run: rows, or all choices of all rows.
    pub(crate) fn texts(&self) -> Dim {
        let rows = Dim::symbol(BATCH);
        if self.chooses { rows.checked_mul(&Dim::symbol(CHOICES)).unwrap_or_default() } else { rows }
    }

    /// An input of ids from 0 up to, not including, `end`: i64[batch_size, sequence_length]. Where texts are chosen among, it is
    /// i64[batch_size, num_choices, sequence_length], and the result has all texts one after the other.
    pub(crate) fn input(&mut self, input: Named<InputRole>, end: i64) -> Result<ValueId, ModelError> {
        let (rows, tokens) = (Dim::symbol(BATCH), Dim::symbol(SEQUENCE));
        if !self.chooses {
            return Ok(self.ids(input, [rows, tokens], end));
        }
        let ids = self.ids(input, [rows, Dim::symbol(CHOICES), tokens.clone()], end);
        self.reshape(ids, [self.texts(), tokens], &format!("{}.texts", input.0))
    }

    /// An input of ids from 0 up to, not including, `end`.
    pub(crate) fn ids(
        &mut self,
        (name, role): Named<InputRole>,
        dims: impl IntoIterator<Item = Dim>,
        end: i64,
    ) -> ValueId {
        self.id_ranges.push(IdRange { input: name.to_owned(), end });
        self.add_input(name, role, DType::I64, dims)
    }

    /// An input of integers that index nothing.
    pub(crate) fn integers(&mut self, (name, role): Named<InputRole>, dims: impl IntoIterator<Item = Dim>) -> ValueId {
        self.add_input(name, role, DType::I64, dims)
    }

    /// An input of 32 bit floats.
    pub(crate) fn floats(&mut self, name: &str, role: InputRole, dims: impl IntoIterator<Item = Dim>) -> ValueId {
        self.add_input(name, role, DType::F32, dims)
    }

    /// An input, stated in the interface with the symbols of its dimensions.
    pub(crate) fn add_input(
        &mut self,
        name: &str,
        role: InputRole,
        dtype: DType,
        dims: impl IntoIterator<Item = Dim>,
    ) -> ValueId {
        let shape = Shape::new(dims);
        let symbols = shape.iter().flat_map(Dim::symbols).map(|symbol| (symbol.clone(), names::symbol(symbol)));
        self.graph.interface.symbols.extend(symbols);
        self.graph.interface.inputs.insert(name.to_owned(), role);
        self.graph.add_input(name, TensorType::new(dtype, shape), Origin::Unknown)
    }

    /// Makes a value an output.
    pub(crate) fn output(&mut self, name: &str, role: OutputRole, value: ValueId) {
        self.graph.interface.outputs.insert(name.to_owned(), role);
        self.graph.add_output(name, value);
    }

    /// Makes a value the output of a fixed name.
    pub(crate) fn give(&mut self, (name, role): Named<OutputRole>, value: ValueId) {
        self.output(name, role, value);
    }

    /// A weight under the first of several names that is stored; it takes the first name.
    pub(crate) fn weight(&mut self, names: &[&str], shape: &[Size]) -> Result<ValueId, ModelError> {
        let name = names.first().copied().unwrap_or_default();
        if let Some(&value) = self.weights.get(name) {
            return Ok(value);
        }
        let (weight, origin) = self.tensors.take(names, shape)?;
        let value = self.graph.add_weight(name, weight, origin);
        self.weights.insert(name.to_owned(), value);
        Ok(value)
    }

    /// The weight of a module, [out, ..], and its bias, `[out]`, where it has one.
    pub(crate) fn weight_and_bias(
        &mut self,
        module: &str,
        shape: &[Size],
        bias: bool,
    ) -> Result<(ValueId, Option<ValueId>), ModelError> {
        let weight = self.weight(&[&format!("{module}.weight")], shape)?;
        let bias = if bias { Some(self.weight(&[&format!("{module}.bias")], &shape[..1])?) } else { None };
        Ok((weight, bias))
    }

    /// A weight of indices: i64.
    pub(crate) fn indices(&mut self, name: &str, shape: &[Size]) -> Result<ValueId, ModelError> {
        let (weight, origin) = self.tensors.take_indices(name, shape)?;
        Ok(self.graph.add_weight(name, weight, origin))
    }

    /// Appends a node with one result.
    pub(crate) fn emit(&mut self, op: impl Into<Op>, module: &str) -> Result<ValueId, ModelError> {
        let results = self.emit_all(op, module)?;
        Ok(results.first().copied().unwrap_or_else(|| unreachable!("operators have at least one result")))
    }

    /// Appends a node.
    pub(crate) fn emit_all(&mut self, op: impl Into<Op>, module: &str) -> Result<Vec<ValueId>, ModelError> {
        Ok(self.graph.emit(op, module, Origin::Module(module.into()))?)
    }

    /// `a + b`.
    pub(crate) fn add(&mut self, a: ValueId, b: ValueId, module: &str) -> Result<ValueId, ModelError> {
        self.binary(BinaryKind::Add, [a, b], module)
    }

    /// An operator of two values.
    pub(crate) fn binary(
        &mut self,
        kind: BinaryKind,
        [a, b]: [ValueId; 2],
        module: &str,
    ) -> Result<ValueId, ModelError> {
        self.emit(Binary { kind, a, b }, module)
    }

    /// An operator of a value and a number, of which a key of the configuration is the reason.
    pub(crate) fn with_number(
        &mut self,
        kind: BinaryKind,
        x: ValueId,
        number: f64,
        module: &str,
        key: &str,
    ) -> Result<ValueId, ModelError> {
        let number = self.number(number, &format!("{module}.by"), key);
        self.binary(kind, [x, number], module)
    }

    /// Another shape of a value.
    pub(crate) fn reshape(
        &mut self,
        x: ValueId,
        dims: impl IntoIterator<Item = Dim>,
        module: &str,
    ) -> Result<ValueId, ModelError> {
        self.emit(Reshape { x, shape: Shape::new(dims) }, module)
    }

    /// The axes of a value in another order.
    pub(crate) fn transpose(&mut self, x: ValueId, perm: &[usize], module: &str) -> Result<ValueId, ModelError> {
        self.emit(Transpose { x, perm: perm.to_vec() }, module)
    }

    /// Three parts of as many features each: [.., 3 * size] to [.., size] of rank 3.
    pub(crate) fn thirds(&mut self, x: ValueId, size: Size, module: &str) -> Result<[ValueId; 3], ModelError> {
        match self.emit_all(Split { x, axis: 2, sizes: vec![size.value; 3] }, module)?[..] {
            [first, second, third] => Ok([first, second, third]),
            _ => unreachable!("a split has as many results as sizes"),
        }
    }

    /// `torch.nn.Linear` with bias.
    pub(crate) fn linear(&mut self, x: ValueId, module: &str, out: Size, inner: Size) -> Result<ValueId, ModelError> {
        self.projection(x, module, [out, inner], true)
    }

    /// `torch.nn.Linear`, of [out, in] features, with or without bias.
    pub(crate) fn projection(
        &mut self,
        x: ValueId,
        module: &str,
        [out, inner]: [Size; 2],
        bias: bool,
    ) -> Result<ValueId, ModelError> {
        let (weight, bias) = self.weight_and_bias(module, &[out, inner], bias)?;
        self.emit(Linear::new(x, weight, bias), module)
    }

    /// `Conv1D` of the transformers library: a linear layer whose weight is stored as [in, out], but as
    /// [out, in] where all layers are.
    pub(crate) fn conv1d(&mut self, x: ValueId, module: &str, out: Size, inner: Size) -> Result<ValueId, ModelError> {
        if self.tensors.is_out_in(&format!("{module}.weight")) {
            return self.linear(x, module, out, inner);
        }
        let weight = self.weight(&[&format!("{module}.weight")], &[inner, out])?;
        let bias = Some(self.weight(&[&format!("{module}.bias")], &[out])?);
        self.emit(Linear { transposed: Flag(true), ..Linear::new(x, weight, bias) }, module)
    }

    /// A number of the configuration: f32[].
    pub(crate) fn number(&mut self, number: f64, name: &str, key: &str) -> ValueId {
        let weight = Weight::numbers(DType::F32, Vec::new(), &[number]);
        let weight = weight.unwrap_or_else(|| unreachable!("a scalar is one number"));
        self.graph.add_weight(name, weight, Origin::Config(key.into()))
    }

    /// A weight of ones: the factor of a norm that has none.
    pub(crate) fn ones(&mut self, name: &str, size: Size) -> ValueId {
        let weight = Weight::numbers(DType::F32, vec![size.value], &vec![1.0; size.value]);
        let weight = weight.unwrap_or_else(|| unreachable!("there are as many numbers as the shape says"));
        self.graph.add_weight(name, weight, Origin::Unknown)
    }

    /// A weight of zeros.
    pub(crate) fn zeros(&mut self, name: &str, size: Size) -> ValueId {
        let weight = Weight::numbers(DType::F32, vec![size.value], &vec![0.0; size.value]);
        let weight = weight.unwrap_or_else(|| unreachable!("there are as many numbers as the shape says"));
        self.graph.add_weight(name, weight, Origin::Unknown)
    }

    /// `torch.nn.Embedding` of `rows` vectors.
    pub(crate) fn embedding(
        &mut self,
        ids: ValueId,
        module: &str,
        rows: Size,
        features: Size,
    ) -> Result<ValueId, ModelError> {
        let weight = self.weight(&[&format!("{module}.weight")], &[rows, features])?;
        self.emit(Embedding { weight, ids }, module)
    }
}
