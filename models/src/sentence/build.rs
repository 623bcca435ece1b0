//! Modules as operators after the graph of a model.

use planish_ir::ops::{Cast, Linear, Real, RmsNorm, Slice};
use planish_ir::{DType, Dim, Origin, Output, OutputRole, ValueId, Weight};

use super::{Dense, Feature, Features, Kind, Module, m3, pooling, splade};
use crate::ModelError;
use crate::checkpoint::config::{MAX_SIZE, Size};
use crate::layers::builder::Builder;
use crate::names;

/// Added to the squared length of a vector that is divided by its length: the square of the least length that
/// `torch.nn.functional.normalize` divides by.
const LEAST_SQUARE: f64 = 1e-24;

/// The `eps` of `torch.nn.LayerNorm`.
const LAYER_NORM_EPS: f64 = 1e-5;

/// Adds modules after what a graph gives, and makes what they give its outputs. Where vectors or scores of tokens are of no use to
/// others than the library, they are outputs with `gives_inputs` only.
pub(super) fn build(b: &mut Builder<'_>, modules: &[Module], gives_inputs: bool) -> Result<(), ModelError> {
    let (outputs, roles) = (b.graph.take_outputs(), std::mem::take(&mut b.graph.interface.outputs));
    let is_of_tokens =
        |output: &&Output| matches!(roles.get(&output.name), Some(OutputRole::HiddenStates | OutputRole::Logits));
    let of_tokens = outputs.iter().find(is_of_tokens).map(|output| output.value);
    let model = of_tokens.unwrap_or_else(|| unreachable!("a model gives vectors or scores of tokens"));
    let is_mask = |input: &&ValueId| b.graph.interface.input(&b.graph.value(**input).name).is_mask();
    let Some(mask) = b.graph.inputs().iter().find(is_mask).copied() else {
        return Err(b.config.error("the model takes no attention mask, so no pooling can tell tokens from padding"));
    };
    let mask = b.emit(Cast { x: mask, to: DType::Bool }, "pooling.mask")?;
    let mut features = Features { tokens: model, sentence: None, mask };
    for module in modules {
        apply(b, module, &mut features)?;
    }
    let has = |wanted: fn(&Kind) -> bool| modules.iter().any(|module| wanted(&module.kind));
    let (is_sparse, is_m3) = (has(|kind| matches!(kind, Kind::Splade(_))), has(|kind| matches!(kind, Kind::M3)));
    if !is_sparse && !is_m3 {
        b.give(names::TOKENS, features.tokens);
    }
    match features.sentence {
        Some(sentence) => b.give(names::SENTENCE, sentence),
        None if is_m3 => return Err(b.tensors.of_module("", "no module gives the vector of a text".to_owned())),
        None => {}
    }
    if is_m3 {
        m3::build(b, &features)?;
    }
    // For the libraries that pool by themselves.
    if gives_inputs || (!is_sparse && features.sentence.is_some()) {
        b.give(if is_sparse { names::LOGITS } else { names::HIDDEN }, model);
    }
    Ok(())
}

/// Adds one module.
fn apply(b: &mut Builder<'_>, module: &Module, features: &mut Features) -> Result<(), ModelError> {
    let name = module.name();
    match &module.kind {
        Kind::Pooling { modes, features: size } => {
            if let Some(size) = size {
                check_width(b, module, features.tokens, *size)?;
            }
            features.sentence = Some(pooling::pool(b, modes, features, &name)?);
        }
        Kind::Dense(dense) => {
            let x = features.get(dense.features[0], b, module)?;
            check_width(b, module, x, dense.inner)?;
            let projected = project(b, dense, x, module)?;
            features.set(dense.features[1], projected);
        }
        Kind::Normalize([from, to]) => {
            let x = features.get(*from, b, module)?;
            let normalized = normalize(b, x, &name)?;
            features.set(*to, normalized);
        }
        Kind::LayerNorm(size) => {
            let x = features.get(Feature::Sentence, b, module)?;
            check_width(b, module, x, *size)?;
            features.sentence = Some(b.layer_norm(x, &module.at("norm"), *size, LAYER_NORM_EPS)?);
        }
        Kind::Splade(splade) => features.sentence = Some(splade::pool(b, splade, features, module)?),
        // Its outputs come after all modules.
        Kind::M3 => {}
        Kind::Truncate(size) => {
            let x = features.get(Feature::Sentence, b, module)?;
            if width(b, x).is_none_or(|width| width > size.signed()) {
                let (start, end) = (Dim::constant(0), Dim::constant(size.signed()));
                features.sentence = Some(b.emit(Slice { x, axis: 1, start, end }, &name)?);
            }
        }
    }
    Ok(())
}

/// The number of features of a value.
pub(super) fn width(b: &Builder<'_>, x: ValueId) -> Option<i64> {
    b.graph.ty(x).shape.last()?.as_constant()
}

/// Refuses a module that is made for another number of features than it gets.
pub(super) fn check_width(b: &Builder<'_>, module: &Module, x: ValueId, size: Size) -> Result<(), ModelError> {
    match width(b, x) {
        Some(width) if width != size.signed() => {
            let message = format!("its configuration has {size}, but what it reads has {width} features");
            Err(b.tensors.of_module(&module.path, message))
        }
        _ => Ok(()),
    }
}

/// A linear layer, its activation, and the sum with what it reads.
fn project(b: &mut Builder<'_>, dense: &Dense, x: ValueId, module: &Module) -> Result<ValueId, ModelError> {
    let at = |name: &str| module.at(name);
    let projected = b.projection(x, &at("linear"), [dense.out, dense.inner], dense.bias)?;
    let active = dense.activation.apply(b, projected, &at("activation"))?;
    if !dense.residual {
        return Ok(active);
    }
    let x = match dense.inner.value == dense.out.value {
        true => x,
        false => {
            let weight = b.weight(&[&at("residual.weight")], &[dense.out, dense.inner])?;
            b.emit(Linear::new(x, weight, None), &at("residual"))?
        }
    };
    b.add(active, x, &at("add"))
}

/// Vectors divided by their Euclidean lengths, as `torch.nn.functional.normalize`: [.., features]. The root of the mean of
/// squares is the length over the root of the number of features.
pub(crate) fn normalize(b: &mut Builder<'_>, x: ValueId, module: &str) -> Result<ValueId, ModelError> {
    let features = width(b, x).unwrap_or_default();
    let size = usize::try_from(features).unwrap_or_default();
    if !(1..=MAX_SIZE).contains(&size) {
        return Err(b.tensors.of_module("", format!("vectors of {features} features have no length to be divided by")));
    }
    let scale = 1.0 / (features as f64).sqrt();
    let weight = Weight::numbers(DType::F32, vec![size], &vec![scale; size]);
    let weight = weight.unwrap_or_else(|| unreachable!("there are as many numbers as features"));
    let weight = b.graph.add_weight(&format!("{module}.scale"), weight, Origin::Module(module.into()));
    b.emit(RmsNorm { x, weight, eps: Real(LEAST_SQUARE / features as f64) }, module)
}
