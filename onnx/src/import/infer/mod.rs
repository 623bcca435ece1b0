//! The types of results that operators without a counterpart in the IR have, as far as their operands tell
//! them. What is left open is declared by the graph, or a size that the operator determines.

mod contrib;
mod control;
mod elementwise;
mod movement;
mod network;
mod reduce;
mod spatial;

use planish_ir::{DType, Dim, Shape, TensorType};

use super::is_default;
use super::nodes::Node;
use super::scope::Scope;

/// A result's type, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Partial {
    pub(super) dtype: DType,
    /// `None` for a size that depends on what only a run knows.
    pub(super) dims: Vec<Option<Dim>>,
}

impl Partial {
    fn new(dtype: DType, dims: impl IntoIterator<Item = Option<Dim>>) -> Self {
        Self { dtype, dims: dims.into_iter().collect() }
    }

    /// A type of which everything is known.
    fn known(dtype: DType, dims: &[Dim]) -> Self {
        Self::new(dtype, dims.iter().cloned().map(Some))
    }

    /// A type of which only the number of dimensions is known.
    fn open(dtype: DType, rank: usize) -> Self {
        Self::new(dtype, vec![None; rank])
    }

    /// The type with what is open taken from a declaration.
    ///
    /// # Errors
    /// When the two are no type of one value.
    pub(super) fn complete(
        self,
        declared: Option<&TensorType>,
        scope: &mut Scope,
        name: &str,
    ) -> Result<TensorType, String> {
        let clash = |declared: &TensorType, found: &Partial| {
            Err(format!(
                "its result `{name}` is declared as {declared} and is {found}; correct or drop the declaration"
            ))
        };
        if let Some(ty) = declared {
            let differs = |(declared, found): (&Dim, &Option<Dim>)| match (
                declared.as_constant(),
                found.as_ref().and_then(Dim::as_constant),
            ) {
                (Some(declared), Some(found)) => declared != found,
                _ => false,
            };
            if ty.dtype != self.dtype
                || ty.shape.rank() != self.dims.len()
                || ty.shape.iter().zip(&self.dims).any(differs)
            {
                return clash(ty, &self);
            }
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
        write!(f, "{}[{}]", self.dtype, dims.join(", "))
    }
}

/// The results of a node: none where nothing is known of the operator, or of results beyond the last.
type Found = Result<Vec<Partial>, String>;

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
    let found = types(scope, node)?;
    let negative = |p: &&Partial| p.dims.iter().flatten().filter_map(Dim::as_constant).any(|d| d < 0);
    match found.iter().find(negative) {
        Some(result) => Err(format!("its result would be {result}")),
        None => Ok(found),
    }
}

fn types(scope: &mut Scope, node: &Node<'_>) -> Found {
    if node.proto.domain == contrib::DOMAIN {
        return contrib::types(scope, node);
    }
    if !is_default(&node.proto.domain) {
        return Ok(Vec::new());
    }
    if LIKE_FIRST.contains(&node.proto.op_type.as_str()) {
        return Ok(vec![scope.ty(node.input(0)?)?.into()]);
    }
    let groups = [elementwise::types, movement::types, reduce::types, network::types, spatial::types];
    for group in groups {
        if let Some(found) = group(scope, node)? {
            return Ok(found);
        }
    }
    control::types(scope, node)
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

/// What declares the results of a domain's operators.
pub(super) fn declares(domain: &str) -> &'static str {
    match domain {
        _ if is_default(domain) => "onnx.shape_inference.infer_shapes declares it",
        contrib::DOMAIN => "python -m onnxruntime.tools.symbolic_shape_infer declares it",
        _ => "declare it in the graph's value_info",
    }
}

/// What an operand lacks that a result's number of dimensions depends on.
fn no_rank(of: &str) -> String {
    format!(
        "the number of elements of its operand `{of}`, on which the dimensions of its result depend, is not known or \
         above {MAX_RANK}"
    )
}
