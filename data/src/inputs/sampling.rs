//! What a sample of tensors is, which the inputs of a model decide.

use std::borrow::Borrow;
use std::collections::BTreeSet;

use planish_artifact::manifest::Input;
use planish_ir::{Dim, Symbol};
use planish_onnx::interface::names_rows;

use super::{InputSpec, Values};

/// Where the samples of a data set of tensors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Along the first axis of each tensor: the first dimension of all inputs is the same, which is the batch.
    FirstAxis,
    /// In files, a sample each: a file has the inputs of one run, because their first dimensions have nothing in common, as
    /// those of the nodes and the edges of a graph.
    Files,
}

/// What the first dimension of an input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum First<'a> {
    /// There is none.
    Absent,
    /// A size that the model fixes.
    Fixed(i64),
    /// A batch, by the name of the dimension.
    Batch,
    /// A dimension without a name, about which the model says nothing.
    Unnamed,
    /// Something else.
    Named(&'a Dim),
}

impl Sampling {
    /// For a model that takes these inputs.
    pub fn of(wanted: &[(impl Borrow<str>, &Input)]) -> Self {
        // What is no tensor of a known number of dimensions cannot be given.
        let tensors = wanted.iter().filter(|(_, input)| input.value.dtype().is_some());
        Self::of_dims(tensors.map(|(_, input)| (input.value.name.as_str(), input.value.dims())))
    }

    /// For tensors with these names and dimensions. A size of 1 is that of a batch of 1, beside dimensions that are batches or
    /// have no name.
    pub fn of_dims<'a>(tensors: impl Iterator<Item = (&'a str, &'a [Dim])>) -> Self {
        let firsts: BTreeSet<First<'_>> = tensors.map(|(name, dims)| First::of(name, dims)).collect();
        let is_open = |first: &First<'_>| matches!(first, First::Batch | First::Unnamed | First::Fixed(1));
        if firsts.len() <= 1 && !firsts.contains(&First::Absent) || firsts.iter().all(is_open) {
            return Self::FirstAxis;
        }
        Self::Files
    }

    /// What files of tensors have, for messages.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::FirstAxis => "with samples along the first axis",
            Self::Files => "a file for each sample, with the shapes of one run",
        }
    }
}

/// Whether inputs that are made up may not fit together: sizes that have nothing in common, or integers that may select what is
/// not there.
pub fn may_not_fit(specs: &[InputSpec]) -> bool {
    let is_guess = |spec: &InputSpec| spec.values == Values::Noise && spec.port.ty.dtype.is_integer();
    let ports = specs.iter().map(|spec| (spec.port.name.as_str(), &spec.port.ty.shape[..]));
    specs.iter().any(is_guess) || Sampling::of_dims(ports) == Sampling::Files
}

impl<'a> First<'a> {
    fn of(name: &str, dims: &'a [Dim]) -> Self {
        let Some(dim) = dims.first() else { return Self::Absent };
        match (dim.as_constant(), dim.as_symbol()) {
            (Some(size), _) => Self::Fixed(size),
            _ if dim.symbols().any(|symbol| names_rows(symbol)) => Self::Batch,
            (None, Some(symbol)) if is_unnamed(name, symbol) => Self::Unnamed,
            _ => Self::Named(dim),
        }
    }
}

/// Whether a symbol is one that planish or an exporter made up for the first dimension of an input: `x_dim_0` by planish,
/// `x_dynamic_axes_1` by PyTorch where axes were given without names, `unk__5` by tf2onnx.
fn is_unnamed(input: &str, symbol: &Symbol) -> bool {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let input: String = input.chars().map(plain).collect();
    let of_input = symbol.strip_prefix(input.as_str()).or_else(|| symbol.strip_prefix("dim_"));
    of_input.is_some_and(|rest| rest.starts_with("_dim_") || rest.starts_with("_dynamic_axes_"))
        || symbol.starts_with("unk__")
}

#[cfg(test)]
mod tests {
    use planish_artifact::value::ValueInfo;

    use super::*;
    use planish_ir::InputRole;

    fn of(types: &[&str]) -> Sampling {
        let input = |(at, ty): (usize, &&str)| Input {
            value: ValueInfo { name: format!("x.{at}"), ty: ty.parse().unwrap() },
            end: None,
            role: InputRole::Other,
        };
        let inputs: Vec<Input> = types.iter().enumerate().map(input).collect();
        let wanted: Vec<(&str, &Input)> = inputs.iter().map(|input| (input.value.name.as_str(), input)).collect();
        Sampling::of(&wanted)
    }

    #[test]
    fn a_common_first_dimension_counts_samples() {
        for types in [
            &["f32[n, 3, 2, 2]"][..],
            &["i64[s0, s1]", "i64[s0, s1]"],
            &["i64[batch_size, s]", "f32[batch_size, 2, past, 4]", "bool[1]"],
            &["i64[batch, s]", "i64[batch*beams]"],
            &["f32[4, 2]", "f32[4, 8]"],
            &["f32[1, 2]", "f32[1]"],
            &["f32[x_0_dim_0, 2]", "f32[x_1_dim_0]"],
            &["f32[x_0_dynamic_axes_1, 2]", "f32[x_1_dynamic_axes_1]", "f32[1, 2]"],
            &["f32[unk__5, 2]", "f32[unk__7]", "f32[batch]"],
            &[],
        ] {
            assert_eq!(of(types), Sampling::FirstAxis, "{types:?}");
        }
    }

    #[test]
    fn without_one_a_sample_is_a_file() {
        for types in [
            &["f32[nodes, 16]", "i64[2, edges]"][..],
            &["f32[nodes, 16]", "i64[edges, 2]"],
            &["f32[x_0_dim_0, 16]", "i64[2, x_1_dim_1]"],
            &["f32[nodes, 16]", "f32[1, 8]"],
            &["f32[batch, 512]", "f32[2, batch, 128]", "i64[]"],
            &["f32[batch, 512]", "i64[boxes, 4]"],
            &["f32[34, 16]", "i64[2, 78]"],
            &["f32[]"],
        ] {
            assert_eq!(of(types), Sampling::Files, "{types:?}");
        }
    }
}
