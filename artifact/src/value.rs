//! Names and types of inputs and outputs, in the form of `planish.json`.

use planish_ir::{DType, Dim, Shape, TensorType, Type};
use planish_runtimes::Port;
use serde::{Deserialize, Serialize};

use crate::manifest::PartManifest;

/// The name and the type of an input, an output or a weight. In JSON: `name`, `dtype` and `shape`, the sizes in that being
/// numbers where they are known, else the symbol or the sum. The `dtype` of what is not a tensor of a known number of dimensions
/// is its whole type, such as `seq(f32[2])`, and its `shape` is empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct ValueInfo {
    /// The name.
    pub name: String,
    /// The type.
    pub ty: Type,
}

impl PartManifest {
    /// The inputs and the outputs, with the names of their dimensions.
    pub fn ports(&self) -> Vec<Port> {
        let values =
            self.inputs.iter().map(|input| &input.value).chain(self.outputs.iter().map(|output| &output.value));
        values.filter_map(|value| Some(Port { name: value.name.clone(), ty: value.ty.as_tensor()?.clone() })).collect()
    }
}

impl ValueInfo {
    /// The dimensions of a tensor; none where it is not a tensor of a known number of them.
    #[must_use]
    pub fn dims(&self) -> &[Dim] {
        self.ty.as_tensor().map_or(&[], |ty| &ty.shape[..])
    }

    /// The name, and the type of a tensor of a known number of dimensions.
    pub(crate) fn named(&self) -> planish_onnx::interface::Named<'_> {
        (&self.name, self.ty.as_tensor())
    }

    /// The element type of a tensor of a known number of dimensions.
    #[must_use]
    pub fn dtype(&self) -> Option<DType> {
        self.ty.as_tensor().map(|ty| ty.dtype)
    }
}

/// As it is in JSON.
#[derive(Clone, Serialize, Deserialize)]
struct Written {
    name: String,
    dtype: String,
    shape: Vec<Size>,
}

/// A size in JSON.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Size {
    Known(u64),
    Text(String),
}

impl From<ValueInfo> for Written {
    fn from(value: ValueInfo) -> Self {
        let size = |dim: &Dim| match dim.as_constant().and_then(|size| u64::try_from(size).ok()) {
            Some(size) => Size::Known(size),
            None => Size::Text(dim.to_string()),
        };
        let dtype = value.dtype().map_or_else(|| value.ty.to_string(), |dtype| dtype.to_string());
        Self { dtype, shape: value.dims().iter().map(size).collect(), name: value.name }
    }
}

impl TryFrom<Written> for ValueInfo {
    type Error = String;
    fn try_from(written: Written) -> Result<Self, String> {
        let dim = |size: &Size| match size {
            Size::Known(size) => i64::try_from(*size).map(Dim::constant).map_err(|_| format!("{size} is not a size")),
            // Texts of other tools that are not sums are the names of sizes.
            Size::Text(text) => Ok(text.parse().unwrap_or_else(|_| Dim::symbol(text))),
        };
        let ty = match written.dtype.parse::<DType>() {
            Ok(dtype) => {
                let dims = written.shape.iter().map(dim).collect::<Result<Vec<_>, _>>()?;
                TensorType::new(dtype, Shape::new(dims)).into()
            }
            Err(_) => written.dtype.parse()?,
        };
        Ok(Self { name: written.name, ty })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dtype: &str, shape: &str) -> ValueInfo {
        serde_json::from_str(&format!(r#"{{"name": "x", "dtype": "{dtype}", "shape": {shape}}}"#)).unwrap()
    }

    #[test]
    fn known_sizes_are_numbers_and_were_strings() {
        let new = read("f32", r#"["batch_size", 128, "past + 1"]"#);
        assert_eq!(new, read("f32", r#"["batch_size", "128", "past + 1"]"#));
        assert_eq!(new.ty.to_string(), "f32[batch_size, 128, past + 1]");
        assert_eq!(new.dims()[2], "past + 1".parse().unwrap());
        let written = serde_json::to_string(&new).unwrap();
        assert_eq!(written, r#"{"name":"x","dtype":"f32","shape":["batch_size",128,"past + 1"]}"#);
        for shape in ["[-1]", "[1.5]", "[18446744073709551615]"] {
            let text = format!(r#"{{"name": "x", "dtype": "f32", "shape": {shape}}}"#);
            serde_json::from_str::<ValueInfo>(&text).unwrap_err();
        }
    }

    #[test]
    fn what_is_no_tensor_is_written_as_its_whole_type() {
        for ty in ["seq(f32[2])", "f32[*]", "optional(i64[n])"] {
            let value = read(ty, "[]");
            assert_eq!((value.ty.to_string().as_str(), value.dims(), value.dtype()), (ty, &[][..], None));
            let written = serde_json::to_string(&value).unwrap();
            assert_eq!(written, format!(r#"{{"name":"x","dtype":"{ty}","shape":[]}}"#));
        }
        serde_json::from_str::<ValueInfo>(r#"{"name": "x", "dtype": "strange", "shape": []}"#).unwrap_err();
    }
}
