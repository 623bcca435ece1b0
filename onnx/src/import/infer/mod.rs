//! The types of results that operators without a counterpart in the IR have, as far as their operands tell
//! them. What is left open is declared by the graph, or a size that the operator determines.

mod contrib;
mod control;
mod elementwise;
mod movement;
mod network;
mod open;
mod reduce;
mod sequence;
mod spatial;
mod text;

use planish_ir::{DType, Dim, Shape, TensorType, Type};

use super::nodes::Node;
use super::scope::Scope;
use super::{CONTRIB, is_default};
use crate::proto::NodeProto;

/// What is known of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Inferred {
    /// It is a tensor.
    Tensor(Partial),
    /// It is of this type.
    Other(Type),
    /// Nothing.
    Nothing,
}

impl Inferred {
    /// What a type says.
    fn of(ty: Type) -> Self {
        match ty {
            Type::Tensor(ty) => Inferred::Tensor(ty.into()),
            Type::Unknown => Inferred::Nothing,
            other => Inferred::Other(other),
        }
    }
}

impl From<Partial> for Inferred {
    fn from(partial: Partial) -> Self {
        if partial.ranked { Inferred::Tensor(partial) } else { Inferred::Other(Type::Unranked(partial.dtype)) }
    }
}

/// A tensor's type, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Partial {
    pub(super) dtype: DType,
    /// `None` for a size that depends on what only a run knows.
    pub(super) dims: Vec<Option<Dim>>,
    /// Whether the number of dimensions is known; else there are none here.
    ranked: bool,
}

impl Partial {
    fn new(dtype: DType, dims: impl IntoIterator<Item = Option<Dim>>) -> Self {
        Self { dtype, dims: dims.into_iter().collect(), ranked: true }
    }

    /// A type of which only the element type is known.
    fn unranked(dtype: DType) -> Self {
        Self { dtype, dims: Vec::new(), ranked: false }
    }

    /// A type of which only the number of dimensions is known, or not even that.
    fn of_rank(dtype: DType, rank: Option<usize>) -> Self {
        rank.map_or_else(|| Self::unranked(dtype), |rank| Self::open(dtype, rank))
    }

    /// A type of which everything is known.
    fn known(dtype: DType, dims: &[Dim]) -> Self {
        Self::new(dtype, dims.iter().cloned().map(Some))
    }

    /// A type of which only the number of dimensions is known.
    fn open(dtype: DType, rank: usize) -> Self {
        Self::new(dtype, vec![None; rank])
    }

    /// The type with what is open taken from a declaration. Where that has other sizes, what was inferred holds, and a
    /// warning says so, as runtimes do.
    ///
    /// # Errors
    /// When the declaration has another element type.
    pub(super) fn complete(
        self,
        mut declared: Option<&TensorType>,
        scope: &mut Scope,
        name: &str,
        node: &NodeProto,
    ) -> Result<TensorType, String> {
        if let Some(ty) = declared {
            if ty.dtype != self.dtype {
                return Err(format!(
                    "its result `{name}` is declared as {ty} and is {self}; correct or drop the declaration"
                ));
            }
            let differs = |(declared, found): (&Dim, &Option<Dim>)| match (
                declared.as_constant(),
                found.as_ref().and_then(Dim::as_constant),
            ) {
                (Some(declared), Some(found)) => declared != found,
                _ => false,
            };
            let other_rank = ty.shape.rank() != self.dims.len();
            if other_rank || ty.shape.iter().zip(&self.dims).any(differs) {
                scope.warn_declared(name, Some(node), ty, &self);
            }
            declared = declared.filter(|_| !other_rank);
        }
        let dims = self.dims.into_iter().enumerate().map(|(axis, dim)| {
            dim.or_else(|| Some(declared?.shape[axis].clone()))
                .unwrap_or_else(|| scope.symbols.fresh(&format!("{name}_dim_{axis}")))
        });
        Ok(TensorType::new(self.dtype, Shape::new(dims)))
    }
}

impl From<TensorType> for Partial {
    fn from(ty: TensorType) -> Self {
        Self::known(ty.dtype, &ty.shape)
    }
}

impl std::fmt::Display for Partial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let dims: Vec<String> = self.dims.iter().map(|d| d.as_ref().map_or("?".to_owned(), Dim::to_string)).collect();
        let dims = if self.ranked { dims.join(", ") } else { "*".to_owned() };
        write!(f, "{}[{dims}]", self.dtype)
    }
}

/// The results of a node: none where nothing is known of the operator, or of results beyond the last.
type Found = Result<Vec<Inferred>, String>;

/// Operators whose first result has the type of the first operand.
const LIKE_FIRST: &[&str] = &[
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "BitwiseNot",
    "Ceil",
    "Celu",
    "Clip",
    "Cos",
    "Cosh",
    "CumProd",
    "CumSum",
    "Elu",
    "Erf",
    "Exp",
    "Floor",
    "Gelu",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "Hardmax",
    "Identity",
    "InstanceNormalization",
    "LRN",
    "LeakyRelu",
    "Log",
    "LogSoftmax",
    "LpNormalization",
    "MeanVarianceNormalization",
    "Mish",
    "Neg",
    "Not",
    "PRelu",
    "RMSNormalization",
    "Reciprocal",
    "Relu",
    "ReverseSequence",
    "RotaryEmbedding",
    "Round",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "Selu",
    "Shrink",
    "Sigmoid",
    "Sign",
    "Sin",
    "Sinh",
    "Softmax",
    "Softplus",
    "Softsign",
    "Sqrt",
    "SwiGLU",
    "Swish",
    "Tan",
    "Tanh",
    "TensorScatter",
    "ThresholdedRelu",
    "Trilu",
];

/// What is known of a node's results, the first ones of them.
///
/// # Errors
/// When operands or attributes are not what the operator takes.
pub(super) fn results(scope: &mut Scope, node: &Node<'_>) -> Found {
    // What is not a tensor of a known number of dimensions has no sizes to follow.
    let is_open = |name: &String| !name.is_empty() && scope.type_of(name).is_ok_and(|ty| ty.as_tensor().is_none());
    if node.proto.input.iter().any(is_open) {
        return open::types(scope, node);
    }
    let found = types(scope, node)?;
    let tensors = found.iter().filter_map(|found| match found {
        Inferred::Tensor(partial) => Some(partial),
        _ => None,
    });
    let negative = |p: &&Partial| p.dims.iter().flatten().filter_map(Dim::as_constant).any(|d| d < 0);
    match tensors.into_iter().find(negative) {
        Some(result) => Err(format!("its result would be {result}")),
        None => Ok(found),
    }
}

fn types(scope: &mut Scope, node: &Node<'_>) -> Found {
    if node.proto.domain == CONTRIB {
        return contrib::types(scope, node);
    }
    if !is_default(&node.proto.domain) {
        return Ok(Vec::new());
    }
    if LIKE_FIRST.contains(&node.proto.op_type.as_str()) {
        return Ok(vec![Partial::from(scope.ty(node.input(0)?)?).into()]);
    }
    let groups = [elementwise::types, movement::types, reduce::types, network::types, spatial::types, text::types];
    for group in groups {
        if let Some(found) = group(scope, node)? {
            return Ok(found.into_iter().map(Inferred::from).collect());
        }
    }
    match sequence::types(scope, node)? {
        Some(found) => Ok(found),
        None => control::types(scope, node),
    }
}

/// The elements of an operand of integers, where it is given and known.
fn numbers(scope: &Scope, node: &Node<'_>, index: usize) -> Option<Vec<i64>> {
    scope.known(node.input(index).ok()?)?.constants()
}

/// The most dimensions that a result has whose number an operand's length decides; runtimes have far fewer.
const MAX_RANK: usize = 64;

/// The number of elements of a vector with one for a dimension, where it is known and not beyond [`MAX_RANK`].
fn length(scope: &Scope, name: &str) -> Option<usize> {
    let ty = scope.ty(name).ok()?;
    let [length] = &ty.shape[..] else { return None };
    usize::try_from(length.as_constant()?).ok().filter(|&n| n <= MAX_RANK)
}
