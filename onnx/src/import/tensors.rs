//! Constants of a model as lazy weights.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use planish_ir::weight::{StoredRange, pack_codes};
use planish_ir::{DType, Weight};

use super::places::Places;
use super::skeleton::WeightFile;
use crate::proto::{DataType, TensorProto};

/// The element type of a number of the format.
pub(crate) fn dtype(number: i32) -> Result<DType, String> {
    let name = |data: DataType| format!("{data:?}").to_lowercase();
    let data = DataType::try_from(number).map_err(|_| format!("element type number {number} is unknown"))?;
    Ok(match data {
        DataType::Bool => DType::Bool,
        DataType::Int8 => DType::I8,
        DataType::Int16 => DType::I16,
        DataType::Int32 => DType::I32,
        DataType::Int64 => DType::I64,
        DataType::Uint8 => DType::U8,
        DataType::Uint16 => DType::U16,
        DataType::Uint32 => DType::U32,
        DataType::Uint64 => DType::U64,
        DataType::Float16 => DType::F16,
        DataType::Bfloat16 => DType::Bf16,
        DataType::Float => DType::F32,
        DataType::Double => DType::F64,
        DataType::String => DType::String,
        DataType::Int2 => DType::I2,
        DataType::Uint2 => DType::U2,
        DataType::Int4 => DType::I4,
        DataType::Uint4 => DType::U4,
        DataType::Float4e2m1 => DType::F4E2M1,
        DataType::Float6e2m3 => DType::F6E2M3,
        DataType::Float6e3m2 => DType::F6E3M2,
        DataType::Float8e4m3fn => DType::F8E4M3FN,
        DataType::Float8e4m3fnuz => DType::F8E4M3FNUZ,
        DataType::Float8e5m2 => DType::F8E5M2,
        DataType::Float8e5m2fnuz => DType::F8E5M2FNUZ,
        DataType::Float8e8m0 => DType::F8E8M0,
        DataType::Undefined => return Err("the element type is not given".to_owned()),
        other => return Err(format!("elements of type {} are not supported", name(other))),
    })
}

/// Whether the elements of a constant were left in its file, or are in another.
pub(super) fn is_elsewhere(tensor: &TensorProto) -> bool {
    tensor.left.is_some() || tensor.data_location == 1
}

/// The files that constants are in.
pub(super) struct Files {
    /// None where constants are in no file.
    model: Option<Arc<WeightFile>>,
    places: Places,
    external: HashMap<String, Arc<WeightFile>>,
}

impl Files {
    pub(super) fn new(model: Arc<WeightFile>, path: &Path) -> Self {
        Self { model: Some(model), places: Places::of(path), external: HashMap::new() }
    }

    /// For what holds all of its constants itself.
    pub(super) fn none() -> Self {
        Self { model: None, places: Places::default(), external: HashMap::new() }
    }

    fn model(&self) -> Result<Arc<WeightFile>, String> {
        self.model.clone().ok_or_else(|| "its elements are in a file, but there is no file".to_owned())
    }

    /// A constant; nothing of it is read.
    ///
    /// # Errors
    /// Why it is none, without its name.
    pub(super) fn weight(&mut self, tensor: &TensorProto) -> Result<Weight, String> {
        let dtype = dtype(tensor.data_type)?;
        let shape = sizes(tensor)?;
        if dtype == DType::String {
            return match is_elsewhere(tensor) {
                true => Err("it is text, which must be in `string_data`".to_owned()),
                false => inline(tensor, dtype),
            };
        }
        let bytes = Weight::size_of(dtype, &shape).ok_or_else(|| too_large(dtype, &shape))?;
        let stored = |source: Arc<WeightFile>, offset: u64, length: u64| {
            if length != bytes {
                return Err(format!("it has {length} bytes, {dtype}{shape:?} takes {bytes}"));
            }
            if offset.checked_add(length).is_none_or(|end| end > source.bytes) {
                return Err(format!("bytes {offset} to {offset} + {length} are beyond the end of the file"));
            }
            Weight::stored(dtype, shape.clone(), StoredRange { source, offset }).ok_or_else(|| too_large(dtype, &shape))
        };
        if tensor.data_location == 1 {
            let (file, offset, length) = self.external(tensor)?;
            let length = length.unwrap_or(bytes);
            return stored(file, offset, length);
        }
        if let Some(left) = tensor.left {
            return stored(self.model()?, left.offset, left.length);
        }
        inline(tensor, dtype)
    }

    /// File, offset and length of elements that are elsewhere; see [`Places`].
    fn external(&mut self, tensor: &TensorProto) -> Result<(Arc<WeightFile>, u64, Option<u64>), String> {
        self.model()?;
        let entry = |key: &str| tensor.external_data.iter().find(|e| e.key == key).map(|e| e.value.as_str());
        let number = |key: &str| {
            let text = entry(key);
            text.map(|t| t.parse::<u64>().map_err(|_| format!("its external data has the {key} `{t}`"))).transpose()
        };
        let location = entry("location").ok_or("its external data has no location")?;
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
        if let Some(file) = self.external.get(location) {
            return Ok((Arc::clone(file), offset, length));
        }
        let path = self.places.find(location)?;
        let failed = |e: std::io::Error| format!("its external data `{location}` cannot be read: {e}");
        let file = Arc::new(WeightFile::open(&path).map_err(failed)?);
        self.external.insert(location.to_owned(), Arc::clone(&file));
        Ok((file, offset, length))
    }
}

fn sizes(tensor: &TensorProto) -> Result<Vec<usize>, String> {
    let shape = tensor.dims.iter().map(|&d| usize::try_from(d)).collect::<Result<Vec<_>, _>>();
    shape.map_err(|_| format!("its dimensions {:?} are not all sizes", tensor.dims))
}

/// A constant whose elements are in the message.
///
/// # Errors
/// When there are too few or too many of them.
pub(super) fn inline(tensor: &TensorProto, dtype: DType) -> Result<Weight, String> {
    let shape = sizes(tensor)?;
    if dtype == DType::String {
        let count = tensor.string_data.len();
        let weight = Weight::text(shape.clone(), &tensor.string_data);
        return weight.ok_or_else(|| format!("it has {count} elements, which are not {dtype}{shape:?}"));
    }
    let data = if tensor.raw_data.is_empty() { typed(tensor, dtype) } else { tensor.raw_data.to_vec() };
    let length = data.len();
    Weight::inline(dtype, shape.clone(), data)
        .ok_or_else(|| format!("it has {length} bytes, which are not {dtype}{shape:?}"))
}

fn too_large(dtype: DType, shape: &[usize]) -> String {
    format!("{dtype}{shape:?} does not fit 64 bits")
}

/// The bytes of elements that are held as numbers; too few or too many where the tensor is wrong.
fn typed(tensor: &TensorProto, dtype: DType) -> Vec<u8> {
    fn bytes<T: Copy, const N: usize>(values: &[T], f: impl Fn(T) -> [u8; N]) -> Vec<u8> {
        values.iter().flat_map(|v| f(*v)).collect()
    }
    match dtype {
        DType::F32 => bytes(&tensor.float_data, f32::to_le_bytes),
        DType::F64 => bytes(&tensor.double_data, f64::to_le_bytes),
        DType::I64 => bytes(&tensor.int64_data, i64::to_le_bytes),
        DType::I32 => bytes(&tensor.int32_data, i32::to_le_bytes),
        // The low bits are the element.
        DType::I16 | DType::U16 | DType::F16 | DType::Bf16 => bytes(&tensor.int32_data, |v| (v as i16).to_le_bytes()),
        DType::U32 => bytes(&tensor.uint64_data, |v| (v as u32).to_le_bytes()),
        DType::U64 => bytes(&tensor.uint64_data, u64::to_le_bytes),
        // Those of fewer bits are packed already: a number holds a byte.
        DType::I8 | DType::U8 => bytes(&tensor.int32_data, |v| [v as u8]),
        DType::I2 | DType::U2 | DType::I4 | DType::U4 | DType::F4E2M1 => bytes(&tensor.int32_data, |v| [v as u8]),
        // But for those of 6 bits: a number holds an element.
        DType::F6E2M3 | DType::F6E3M2 => pack_codes(dtype, &bytes(&tensor.int32_data, |v| [v as u8])),
        DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ | DType::F8E8M0 => {
            bytes(&tensor.int32_data, |v| [v as u8])
        }
        DType::String => Vec::new(),
        DType::Bool => bytes(&tensor.int32_data, |v| [u8::from(v != 0)]),
    }
}
