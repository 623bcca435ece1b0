//! The types of values.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use crate::text::syntax;
use crate::{DType, Dim, Shape, SpellingError, TensorType};

/// What a value is, printed as `f32[batch_size, 128]`, `f32[*]`, `seq(f32[2])`, `optional(T)`, `map(i64, T)` or `?`.
///
/// Operators take and give tensors whose number of dimensions is known. What else there is in ONNX passes through: only
/// `foreign` operators, inputs and outputs of a graph are of such types.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// A tensor of a known number of dimensions.
    Tensor(TensorType),
    /// A tensor of which only the element type is known.
    Unranked(DType),
    /// A list of values of one type. Symbols among the dimensions of its elements stand for any size.
    Sequence(Box<Type>),
    /// A value, or none.
    Optional(Box<Type>),
    /// Values by keys: integers or text.
    Map(DType, Box<Type>),
    /// What nothing is known of.
    Unknown,
}

/// The dimension of [`Type::tensor`] where the type is none of a tensor: no operator and no input has it.
const NONE: &str = "?";

/// By the place of the element type in [`DType::ALL`].
static NO_TENSOR: LazyLock<Vec<TensorType>> = LazyLock::new(|| {
    let one = |&dtype: &DType| TensorType::new(dtype, Shape::new([Dim::symbol(NONE)]));
    DType::ALL.iter().map(one).collect()
});

impl Type {
    /// The type of a tensor, where it is one of a known number of dimensions.
    #[must_use]
    pub fn as_tensor(&self) -> Option<&TensorType> {
        match self {
            Type::Tensor(ty) => Some(ty),
            _ => None,
        }
    }

    /// The type of a tensor; where it is none of a known number of dimensions, one that fits nothing: its one dimension
    /// is a symbol that has no size, and its elements are those of the tensor, or else text.
    #[must_use]
    pub fn tensor(&self) -> &TensorType {
        match self {
            Type::Tensor(ty) => ty,
            Type::Unranked(dtype) => &NO_TENSOR[*dtype as usize],
            _ => &NO_TENSOR[DType::String as usize],
        }
    }

    /// The element type of a tensor of any number of dimensions.
    #[must_use]
    pub fn dtype(&self) -> Option<DType> {
        match self {
            Type::Tensor(ty) => Some(ty.dtype),
            Type::Unranked(dtype) => Some(*dtype),
            _ => None,
        }
    }

    /// The dimensions of a tensor; none where it is none of a known number of dimensions.
    pub fn dims(&self) -> impl Iterator<Item = &Dim> {
        self.as_tensor().into_iter().flat_map(|ty| ty.shape.iter())
    }
}

impl From<TensorType> for Type {
    fn from(ty: TensorType) -> Self {
        Type::Tensor(ty)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor(ty) => ty.fmt(f),
            Type::Unranked(dtype) => write!(f, "{dtype}[*]"),
            Type::Sequence(of) => write!(f, "seq({of})"),
            Type::Optional(of) => write!(f, "optional({of})"),
            Type::Map(key, of) => write!(f, "map({key}, {of})"),
            Type::Unknown => f.write_str("?"),
        }
    }
}

impl FromStr for Type {
    type Err = SpellingError;
    /// Reads what `Display` writes.
    fn from_str(text: &str) -> Result<Self, SpellingError> {
        if text == "?" {
            return Ok(Type::Unknown);
        }
        if let Some(dtype) = text.strip_suffix("[*]") {
            return Ok(Type::Unranked(dtype.parse()?));
        }
        if !text.ends_with(')') {
            return Ok(Type::Tensor(syntax::tensor_type(text)?));
        }
        let (kind, inside, _) = syntax::enclosed(text, '(', ')')?;
        let parts = syntax::split(inside, ',')?;
        match (kind, parts.as_slice()) {
            ("seq", [of]) => Ok(Type::Sequence(Box::new(of.parse()?))),
            ("optional", [of]) => Ok(Type::Optional(Box::new(of.parse()?))),
            ("map", [key, of]) => Ok(Type::Map(key.parse()?, Box::new(of.parse()?))),
            _ => Err(SpellingError::Type(text.to_owned())),
        }
    }
}
