//! Dense tensors in memory.

use half::{bf16, f16};
use planish_ir::weight::WeightError;
use planish_ir::{DType, Shape, TensorType, Weight};

use crate::element::Float;

macro_rules! data {
    ($($variant:ident($t:ty) = $as:ident, $zero:expr;)*) => {
        /// The elements of a tensor, row-major.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Data { $(#[doc = concat!("Elements of type `", stringify!($t), "`.")] $variant(Vec<$t>),)* }

        impl Data {
            /// The element type.
            #[must_use]
            pub fn dtype(&self) -> DType {
                match self { $(Data::$variant(_) => DType::$variant,)* }
            }

            /// The number of elements.
            #[must_use]
            pub fn len(&self) -> usize {
                match self { $(Data::$variant(v) => v.len(),)* }
            }

            /// Whether there is no element.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Appends elements; whether they are of the same type and memory holds them.
            pub(crate) fn extend(&mut self, other: &Self) -> bool {
                match (self, other) {
                    $((Data::$variant(to), Data::$variant(from)) => {
                        let fits = to.try_reserve(from.len()).is_ok();
                        if fits {
                            to.extend_from_slice(from);
                        }
                        fits
                    })*
                    _ => false,
                }
            }

            /// Zeros (false for booleans). `None` for types that no tensor has, see [`Data::of`].
            #[must_use]
            pub fn zeros(dtype: DType, len: usize) -> Option<Self> {
                match dtype {
                    $(DType::$variant => Some(Data::$variant(vec![$zero; len])),)*
                    _ => None,
                }
            }
        }

        impl Tensor {
            $(
                #[doc = concat!("The elements, where they are of type `", stringify!($t), "`.")]
                #[must_use]
                pub fn $as(&self) -> Option<&[$t]> {
                    match &self.data { Data::$variant(v) => Some(v), _ => None }
                }
            )*
        }

        $(impl From<Vec<$t>> for Data {
            fn from(elements: Vec<$t>) -> Self { Data::$variant(elements) }
        })*
    };
}

data! {
    Bool(bool) = as_bool, false;
    I8(i8) = as_i8, 0;
    I16(i16) = as_i16, 0;
    I32(i32) = as_i32, 0;
    I64(i64) = as_i64, 0;
    U8(u8) = as_u8, 0;
    U16(u16) = as_u16, 0;
    U32(u32) = as_u32, 0;
    U64(u64) = as_u64, 0;
    F16(f16) = as_f16, f16::ZERO;
    Bf16(bf16) = as_bf16, bf16::ZERO;
    F32(f32) = as_f32, 0.0;
    F64(f64) = as_f64, 0.0;
}

impl Data {
    /// The element type by which tensors hold elements of a type: the type itself, or for one that operators do not
    /// compute with another that has all its numbers. `None` for text.
    #[must_use]
    pub fn of(dtype: DType) -> Option<DType> {
        match dtype {
            _ if dtype.is_computed() => Some(dtype),
            DType::I2 | DType::I4 => Some(DType::I8),
            DType::U2 | DType::U4 => Some(DType::U8),
            DType::String => None,
            _ => Some(DType::F32),
        }
    }
}

/// A dense tensor, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    shape: Vec<usize>,
    data: Data,
}

impl Tensor {
    /// A tensor of these elements, or `None` where their number does not fit the shape.
    #[must_use]
    pub fn new(shape: Vec<usize>, data: impl Into<Data>) -> Option<Self> {
        let data = data.into();
        let elements = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        (elements == Some(data.len())).then_some(Self { shape, data })
    }

    /// Zeros (false for booleans), or `None` where the number of elements overflows or no tensor has the type.
    #[must_use]
    pub fn zeros(dtype: DType, shape: Vec<usize>) -> Option<Self> {
        let elements = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d))?;
        Self::new(shape, Data::zeros(dtype, elements)?)
    }

    /// A tensor from its little-endian bytes, or `None` where their number does not fit or no tensor has the type.
    #[must_use]
    pub fn from_bytes(dtype: DType, shape: Vec<usize>, bytes: &[u8]) -> Option<Self> {
        if !bytes.len().is_multiple_of(dtype.size()) {
            return None;
        }
        macro_rules! read {
            ($t:ty) => {
                bytes
                    .as_chunks::<{ size_of::<$t>() }>()
                    .0
                    .iter()
                    .map(|b| <$t>::from_le_bytes(*b))
                    .collect::<Vec<$t>>()
                    .into()
            };
        }
        let data: Data = match dtype {
            DType::Bool => bytes.iter().map(|b| *b != 0).collect::<Vec<_>>().into(),
            DType::I8 => read!(i8),
            DType::I16 => read!(i16),
            DType::I32 => read!(i32),
            DType::I64 => read!(i64),
            DType::U8 => bytes.to_vec().into(),
            DType::U16 => read!(u16),
            DType::U32 => read!(u32),
            DType::U64 => read!(u64),
            DType::F16 => read!(f16),
            DType::Bf16 => read!(bf16),
            DType::F32 => read!(f32),
            DType::F64 => read!(f64),
            _ => return None,
        };
        Self::new(shape, data)
    }

    /// The elements as little-endian bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        macro_rules! write {
            ($v:expr) => {
                $v.iter().flat_map(|e| e.to_le_bytes()).collect()
            };
        }
        match &self.data {
            Data::Bool(v) => v.iter().map(|b| u8::from(*b)).collect(),
            Data::I8(v) => write!(v),
            Data::I16(v) => write!(v),
            Data::I32(v) => write!(v),
            Data::I64(v) => write!(v),
            Data::U8(v) => v.clone(),
            Data::U16(v) => write!(v),
            Data::U32(v) => write!(v),
            Data::U64(v) => write!(v),
            Data::F16(v) => write!(v),
            Data::Bf16(v) => write!(v),
            Data::F32(v) => write!(v),
            Data::F64(v) => write!(v),
        }
    }

    /// The value of a weight, in the type of [`Data::of`].
    ///
    /// # Errors
    /// When its bytes cannot be read, or it is text.
    pub fn from_weight(weight: &Weight) -> Result<Self, WeightError> {
        if !weight.dtype().is_computed() {
            let none = || WeightError::Elements { dtype: weight.dtype() };
            let numbers = Data::of(weight.dtype()).ok_or_else(none)?;
            return Self::from_f64(numbers, weight.shape().to_vec(), &weight.read_numbers()?).ok_or_else(none);
        }
        let bytes = weight.read()?;
        let tensor = Self::from_bytes(weight.dtype(), weight.shape().to_vec(), &bytes);
        Ok(tensor.unwrap_or_else(|| unreachable!("a weight's bytes fit its type and shape")))
    }

    /// Element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.data.dtype()
    }

    /// Dimensions.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Element type and shape.
    #[must_use]
    pub fn ty(&self) -> TensorType {
        // Only a tensor without elements can have a dimension beyond i64.
        let dims = self.shape.iter().map(|&d| i64::try_from(d).unwrap_or(i64::MAX).into());
        TensorType::new(self.dtype(), Shape::new(dims))
    }

    /// The bytes that the elements take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        (self.data.len() as u64).saturating_mul(self.dtype().size() as u64)
    }

    /// The same elements under another shape, or `None` where that has another number of them.
    #[must_use]
    pub fn reshaped(self, shape: Vec<usize>) -> Option<Self> {
        Self::new(shape, self.data)
    }

    /// The elements.
    #[must_use]
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// The elements as `f64`; booleans as 0 and 1, integers beyond 2^53 rounded.
    #[must_use]
    pub fn to_f64(&self) -> Vec<f64> {
        match &self.data {
            Data::Bool(v) => v.iter().map(|b| f64::from(u8::from(*b))).collect(),
            Data::I8(v) => v.iter().map(|e| f64::from(*e)).collect(),
            Data::I16(v) => v.iter().map(|e| f64::from(*e)).collect(),
            Data::I32(v) => v.iter().map(|e| f64::from(*e)).collect(),
            Data::I64(v) => v.iter().map(|e| *e as f64).collect(),
            Data::U8(v) => v.iter().map(|e| f64::from(*e)).collect(),
            Data::U16(v) => v.iter().map(|e| f64::from(*e)).collect(),
            Data::U32(v) => v.iter().map(|e| f64::from(*e)).collect(),
            Data::U64(v) => v.iter().map(|e| *e as f64).collect(),
            Data::F16(v) => v.iter().map(|e| e.to_f64()).collect(),
            Data::Bf16(v) => v.iter().map(|e| e.to_f64()).collect(),
            Data::F32(v) => v.iter().map(|e| f64::from(*e)).collect(),
            Data::F64(v) => v.clone(),
        }
    }

    /// Hands each element to `visit` as [`to_f64`](Self::to_f64) gives it, without a copy of all of them.
    pub fn visit_f64(&self, mut visit: impl FnMut(f64)) {
        match &self.data {
            Data::Bool(v) => v.iter().for_each(|b| visit(f64::from(u8::from(*b)))),
            Data::I8(v) => v.iter().for_each(|e| visit(f64::from(*e))),
            Data::I16(v) => v.iter().for_each(|e| visit(f64::from(*e))),
            Data::I32(v) => v.iter().for_each(|e| visit(f64::from(*e))),
            Data::I64(v) => v.iter().for_each(|e| visit(*e as f64)),
            Data::U8(v) => v.iter().for_each(|e| visit(f64::from(*e))),
            Data::U16(v) => v.iter().for_each(|e| visit(f64::from(*e))),
            Data::U32(v) => v.iter().for_each(|e| visit(f64::from(*e))),
            Data::U64(v) => v.iter().for_each(|e| visit(*e as f64)),
            Data::F16(v) => v.iter().for_each(|e| visit(e.to_f64())),
            Data::Bf16(v) => v.iter().for_each(|e| visit(e.to_f64())),
            Data::F32(v) => v.iter().for_each(|e| visit(f64::from(*e))),
            Data::F64(v) => v.iter().for_each(|e| visit(*e)),
        }
    }

    /// Numbers as elements of a type: floats round to nearest even, integers truncate and
    /// saturate, booleans are whether the number differs from zero. `None` where their number
    /// does not fit the shape, or no tensor has the type.
    #[must_use]
    pub fn from_f64(dtype: DType, shape: Vec<usize>, v: &[f64]) -> Option<Self> {
        let data: Data = match dtype {
            DType::Bool => v.iter().map(|e| *e != 0.0).collect::<Vec<_>>().into(),
            DType::I8 => v.iter().map(|e| *e as i8).collect::<Vec<_>>().into(),
            DType::I16 => v.iter().map(|e| *e as i16).collect::<Vec<_>>().into(),
            DType::I32 => v.iter().map(|e| *e as i32).collect::<Vec<_>>().into(),
            DType::I64 => v.iter().map(|e| *e as i64).collect::<Vec<_>>().into(),
            DType::U8 => v.iter().map(|e| *e as u8).collect::<Vec<_>>().into(),
            DType::U16 => v.iter().map(|e| *e as u16).collect::<Vec<_>>().into(),
            DType::U32 => v.iter().map(|e| *e as u32).collect::<Vec<_>>().into(),
            DType::U64 => v.iter().map(|e| *e as u64).collect::<Vec<_>>().into(),
            DType::F16 => v.iter().map(|e| f16::narrow(*e)).collect::<Vec<_>>().into(),
            DType::Bf16 => v.iter().map(|e| bf16::narrow(*e)).collect::<Vec<_>>().into(),
            DType::F32 => v.iter().map(|e| *e as f32).collect::<Vec<_>>().into(),
            DType::F64 => v.to_vec().into(),
            _ => return None,
        };
        Self::new(shape, data)
    }
}
