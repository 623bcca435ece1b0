//! Projections of features, with all inputs of each output or with those of a group only.

use planish_ir::ops::{MatMul, Reshape, Transpose};
use planish_ir::{Dim, Shape, ValueId};

use crate::ModelError;
use crate::checkpoint::config::{Config, Size};
use crate::layers::builder::{Builder, SEQUENCE};

/// How a projection is computed and stored.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// `torch.nn.Linear`.
    Linear,
    /// `torch.nn.Conv1d` with a kernel of 1 and so many groups: [out, in / groups, 1].
    Convolution(Size),
    /// A matrix for each of so many groups: [groups, in / groups, out / groups].
    Grouped(Size),
}

/// The forms of the projections of a layer.
pub(crate) struct Forms {
    pub(crate) query: Form,
    pub(crate) key: Form,
    pub(crate) value: Form,
    pub(crate) output: Form,
    pub(crate) up: Form,
    pub(crate) down: Form,
}

impl Forms {
    pub(crate) const LINEAR: Self = Self {
        query: Form::Linear,
        key: Form::Linear,
        value: Form::Linear,
        output: Form::Linear,
        up: Form::Linear,
        down: Form::Linear,
    };
}

impl Form {
    /// Projects to `out` features from `inner`, with a bias: [batch_size, sequence_length, inner] to the same of `out`.
    pub(crate) fn apply(
        self,
        b: &mut Builder<'_>,
        x: ValueId,
        module: &str,
        [out, inner]: [Size; 2],
    ) -> Result<ValueId, ModelError> {
        let at = |name: &str| format!("{module}.{name}");
        let weight = at("weight");
        let (weight, groups) = match self {
            Form::Linear => return b.linear(x, module, out, inner),
            Form::Convolution(groups) => {
                let [outs, inners] = shares(b.config, [out, inner], groups)?;
                let stored = b.weight(&[&weight], &[out, inners, Size::derived(1, "a kernel of 1")])?;
                let by_group = b.reshape(stored, [groups, outs, inners].map(dim), &at("weight.by_group"))?;
                (b.transpose(by_group, &[0, 2, 1], &at("weight.columns"))?, groups)
            }
            Form::Grouped(groups) => {
                let [outs, inners] = shares(b.config, [out, inner], groups)?;
                (b.weight(&[&weight], &[groups, inners, outs])?, groups)
            }
        };
        let [outs, inners] = shares(b.config, [out, inner], groups)?;
        let tokens = [b.texts(), Dim::symbol(SEQUENCE)];
        let shape = |last: &[Size]| tokens.clone().into_iter().chain(last.iter().copied().map(dim)).collect::<Vec<_>>();
        let apart = b.reshape(x, shape(&[groups, inners]), &at("apart"))?;
        let apart = b.transpose(apart, &[0, 2, 1, 3], &at("by_group"))?;
        let product = b.emit(MatMul { a: apart, b: weight }, &at("product"))?;
        let product = b.transpose(product, &[0, 2, 1, 3], &at("by_token"))?;
        let product = b.reshape(product, shape(&[Size::derived(groups.value * outs.value, out.key)]), &at("merged"))?;
        let bias = b.weight(&[&at("bias")], &[out])?;
        b.add(product, bias, module)
    }
}

fn dim(size: Size) -> Dim {
    size.signed().into()
}

/// The share of each of some sizes that a group has.
fn shares<const N: usize>(config: &Config<'_>, sizes: [Size; N], groups: Size) -> Result<[Size; N], ModelError> {
    match sizes.iter().find(|size| !size.value.is_multiple_of(groups.value)) {
        Some(size) => Err(config.error(format!("{size} is not divisible by {groups}"))),
        None => Ok(sizes.map(|size| Size::derived(size.value / groups.value, size.key))),
    }
}

/// The rows of a weight, which are those of [groups, 3, size], in the order of [3, groups, size].
pub(crate) fn by_kind(
    b: &mut Builder<'_>,
    stored: ValueId,
    rows: &[Dim; 3],
    shape: &[Size],
    name: &str,
) -> Result<ValueId, ModelError> {
    let columns: Vec<Dim> = shape.iter().skip(1).map(|size| size.signed().into()).collect();
    let by_head = Shape::new(rows.iter().chain(&columns).cloned());
    let by_head = b.emit(Reshape { x: stored, shape: by_head }, &format!("{name}.by_head"))?;
    let perm = [1, 0].into_iter().chain(2..rows.len() + columns.len()).collect();
    let by_kind = b.emit(Transpose { x: by_head, perm }, &format!("{name}.by_kind"))?;
    let shape = Shape::new(shape.iter().map(|size| size.signed().into()));
    b.emit(Reshape { x: by_kind, shape }, &format!("{name}.ordered"))
}
