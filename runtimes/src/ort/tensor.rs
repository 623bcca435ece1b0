//! ONNX Runtime's values: tensors in its memory, from ours and back.

use std::sync::Arc;

use ort::value::{DynTensorValueType, DynValue, Outlet, PrimitiveTensorElementType, TensorElementType, ValueType};
use planish_eval::{Data, Tensor};
use planish_ir::{DType, Dim, Shape, TensorType};

use crate::Port;
use crate::ort::device::DeviceMemory;
use crate::value::{beginnings, slices};

/// ONNX Runtime's element type of ours, or `None` where it has none for it on a device.
pub(super) fn element_type(dtype: DType) -> Option<TensorElementType> {
    Some(match dtype {
        DType::Bool => TensorElementType::Bool,
        DType::I8 => TensorElementType::Int8,
        DType::I16 => TensorElementType::Int16,
        DType::I32 => TensorElementType::Int32,
        DType::I64 => TensorElementType::Int64,
        DType::U8 => TensorElementType::Uint8,
        DType::U16 => TensorElementType::Uint16,
        DType::U32 => TensorElementType::Uint32,
        DType::U64 => TensorElementType::Uint64,
        DType::F16 => TensorElementType::Float16,
        DType::Bf16 => TensorElementType::Bfloat16,
        DType::F32 => TensorElementType::Float32,
        DType::F64 => TensorElementType::Float64,
        _ => return None,
    })
}

/// The element type, or `None` where planish has none for it.
fn dtype(ty: TensorElementType) -> Option<DType> {
    match ty {
        TensorElementType::Bool => Some(DType::Bool),
        TensorElementType::Int8 => Some(DType::I8),
        TensorElementType::Int16 => Some(DType::I16),
        TensorElementType::Int32 => Some(DType::I32),
        TensorElementType::Int64 => Some(DType::I64),
        TensorElementType::Uint8 => Some(DType::U8),
        TensorElementType::Uint16 => Some(DType::U16),
        TensorElementType::Uint32 => Some(DType::U32),
        TensorElementType::Uint64 => Some(DType::U64),
        TensorElementType::Float16 => Some(DType::F16),
        TensorElementType::Bfloat16 => Some(DType::Bf16),
        TensorElementType::Float32 => Some(DType::F32),
        TensorElementType::Float64 => Some(DType::F64),
        TensorElementType::String => Some(DType::String),
        _ => None,
    }
}

/// Hands each element type to a macro.
macro_rules! elements {
    ($for_all:ident) => {
        $for_all!(
            Bool: bool,
            I8: i8,
            I16: i16,
            I32: i32,
            I64: i64,
            U8: u8,
            U16: u16,
            U32: u32,
            U64: u64,
            F16: half::f16,
            Bf16: half::bf16,
            F32: f32,
            F64: f64
        )
    };
}

/// An input or output of a session.
pub(crate) fn port(outlet: &Outlet) -> Result<Port, String> {
    let unsupported = || format!("`{}` is a {}, which planish does not handle", outlet.name(), outlet.dtype());
    let ValueType::Tensor { ty, shape, dimension_symbols } = outlet.dtype() else {
        return Err(unsupported());
    };
    // A size the model leaves open is -1.
    let dim = |(axis, &size): (usize, &i64)| match dimension_symbols.get(axis).map(|symbol| symbol.as_ref()) {
        _ if size >= 0 => Dim::constant(size),
        None | Some("") => Dim::symbol(&format!("{}_dim_{axis}", outlet.name())),
        Some(text) => text.parse().unwrap_or_else(|_| Dim::symbol(text)),
    };
    let shape = Shape::new(shape.iter().enumerate().map(dim));
    Ok(Port { name: outlet.name().to_owned(), ty: TensorType::new(dtype(*ty).ok_or_else(unsupported)?, shape) })
}

/// A tensor of ONNX Runtime, in the host's memory or in that of a device.
pub(crate) struct OrtValue {
    inner: DynValue,
    dtype: DType,
    shape: Vec<usize>,
    /// The memory of the device that it is in, if it is in one.
    device: Option<Arc<DeviceMemory>>,
}

impl OrtValue {
    /// Takes over what a run gave.
    pub(crate) fn new(inner: DynValue) -> Result<Self, String> {
        let unsupported = || format!("a {}, which planish does not handle", inner.dtype());
        let ValueType::Tensor { ty, shape, .. } = inner.dtype() else { return Err(unsupported()) };
        let dtype = dtype(*ty).ok_or_else(unsupported)?;
        let shape: Option<Vec<usize>> = shape.iter().map(|&size| usize::try_from(size).ok()).collect();
        let shape = shape.ok_or_else(unsupported)?;
        Ok(Self { inner, dtype, shape, device: None })
    }

    /// The same of a value that may be in the memory of a device.
    pub(super) fn on_device(inner: DynValue, device: Arc<DeviceMemory>) -> Result<Self, String> {
        let value = Self::new(inner)?;
        let tensor = value.inner.view().downcast::<DynTensorValueType>();
        // A value without elements has nothing that could be read there.
        let is_there = !value.shape.contains(&0) && tensor.is_ok_and(|tensor| device.holds(tensor.memory_info()));
        Ok(Self { device: is_there.then_some(device), ..value })
    }

    /// The address of its elements, which the host cannot read where they are in the memory of a device.
    pub(super) fn address(&self) -> u64 {
        let tensor = self.inner.view().downcast::<DynTensorValueType>();
        tensor.map_or(0, |tensor| tensor.data_ptr().expose_provenance() as u64)
    }

    /// The bytes of its elements.
    pub(super) fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.size()
    }

    /// A copy of a tensor.
    pub(crate) fn of(tensor: &Tensor) -> Result<Self, ort::Error> {
        macro_rules! copied {
            ($($variant:ident),*) => {
                match tensor.data() {
                    $(Data::$variant(elements) => Self::from_elements(tensor.shape().to_vec(), elements.clone()),)*
                }
            };
        }
        copied!(Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, Bf16, F32, F64)
    }

    fn from_elements<T>(shape: Vec<usize>, elements: Vec<T>) -> Result<Self, ort::Error>
    where
        T: PrimitiveTensorElementType + Clone + std::fmt::Debug + 'static,
        Data: From<Vec<T>>,
    {
        let dtype = Data::from(Vec::<T>::new()).dtype();
        let inner = ort::value::Tensor::from_array((shape.clone(), elements))?.into_dyn();
        Ok(Self { inner, dtype, shape, device: None })
    }

    /// Texts from their bytes, a tensor with one dimension more: see [`Session::run`](crate::Session::run).
    pub(crate) fn of_texts(tensor: &Tensor) -> Result<Self, String> {
        let parts = tensor.as_u8().zip(tensor.shape().split_last());
        let (bytes, (&width, shape)) = parts.ok_or("texts are given as bytes, the last dimension those of one text")?;
        let count = shape.iter().product();
        let texts = (0..count).map(|at| {
            let text = bytes.get(at * width..(at + 1) * width).unwrap_or_default();
            let length = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
            String::from_utf8(text[..length].to_vec()).map_err(|_| format!("text {at} is not UTF-8"))
        });
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        let inner = ort::value::Tensor::from_string_array((shape.to_vec(), texts.as_slice()));
        let inner = inner.map_err(|error| error.to_string())?.into_dyn();
        Ok(Self { inner, dtype: DType::String, shape: shape.to_vec(), device: None })
    }

    /// The bytes of texts.
    fn texts(&self) -> Option<Tensor> {
        let (_, texts) = self.inner.try_extract_strings().ok()?;
        let width = texts.iter().map(String::len).max().unwrap_or(0);
        let padded = texts.iter().flat_map(|text| {
            let rest = width.saturating_sub(text.len());
            text.bytes().chain(std::iter::repeat_n(0, rest))
        });
        let shape = self.shape.iter().copied().chain([width]).collect();
        Tensor::new(shape, padded.collect::<Vec<u8>>())
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// What a run takes.
    pub(crate) fn inner(&self) -> &DynValue {
        &self.inner
    }

    /// What a run writes to.
    pub(super) fn inner_mut(&mut self) -> &mut DynValue {
        &mut self.inner
    }

    /// Whether it is in the memory of a device.
    pub(super) fn is_on_device(&self) -> bool {
        self.device.is_some()
    }

    /// The elements, if they are of this type and the host can read them.
    pub(crate) fn elements<T: PrimitiveTensorElementType>(&self) -> Option<&[T]> {
        if self.device.is_some() {
            return None;
        }
        self.inner.try_extract_tensor::<T>().ok().map(|(_, elements)| elements)
    }

    /// Some of the outermost slices; `None` where there is no such slice.
    pub(crate) fn take_rows(&self, rows: &[usize]) -> Option<Self> {
        let (count, sizes) = self.shape.split_first()?;
        let shape: Vec<usize> = [rows.len()].into_iter().chain(sizes.iter().copied()).collect();
        if let Some(device) = &self.device {
            let size = self.bytes().checked_div(*count)?;
            if rows.iter().any(|row| row >= count) {
                return None;
            }
            let slices = rows.iter().enumerate().map(|(to, from)| (from * size, to * size, size));
            return device.of_slices(self, shape, slices).ok();
        }
        macro_rules! taken {
            ($($variant:ident: $element:ty),*) => {
                match self.dtype {
                    $(DType::$variant => Self::from_elements(shape, slices::<$element>(self.elements()?, rows, *count)?),)*
                    _ => return None,
                }
            };
        }
        elements!(taken).ok()
    }

    /// The first keys of [batch, heads, keys, size].
    pub(crate) fn first_keys(&self, keys: usize) -> Option<Self> {
        let &[batch, heads, all, size] = &self.shape[..] else { return None };
        let shape = vec![batch, heads, keys, size];
        if let Some(device) = &self.device {
            let [all, kept] = [all, keys].map(|keys| keys * size * self.dtype.size());
            if keys > all {
                return None;
            }
            let slices = (0..batch * heads).map(|head| (head * all, head * kept, kept));
            return device.of_slices(self, shape, slices).ok();
        }
        macro_rules! kept {
            ($($variant:ident: $element:ty),*) => {
                match self.dtype {
                    $(DType::$variant => {
                        Self::from_elements(shape, beginnings::<$element>(self.elements()?, all * size, keys * size))
                    })*
                    _ => return None,
                }
            };
        }
        elements!(kept).ok()
    }

    /// A copy as a tensor.
    pub(crate) fn to_tensor(&self) -> Option<Tensor> {
        if let Some(device) = &self.device {
            let mut bytes = vec![0; self.bytes()];
            device.read(self, &mut bytes).and_then(|()| device.wait()).ok()?;
            return Tensor::from_bytes(self.dtype, self.shape.clone(), &bytes);
        }
        macro_rules! copied {
            ($($variant:ident: $element:ty),*) => {
                match self.dtype {
                    $(DType::$variant => Tensor::new(self.shape.clone(), self.elements::<$element>()?.to_vec()),)*
                    DType::String => self.texts(),
                    _ => None,
                }
            };
        }
        elements!(copied)
    }
}
