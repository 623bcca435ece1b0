//! What an engine takes and gives.

use std::ffi::{CStr, CString};

use planish_ir::{DType, Dim, Shape, TensorType};
use trtx_sys::Dims64;
use trtx_sys::nvinfer1::{DataType, ICudaEngine, OptProfileSelector, TensorIOMode, TensorLocation};

use super::options::{InputRange, Profile};
use crate::Port;

pub(super) fn sizes(dims: &Dims64) -> &[i64] {
    &dims.d[..usize::try_from(dims.nbDims).unwrap_or(0).min(dims.d.len())]
}

/// The inputs and the outputs of an engine.
pub(super) fn ports(engine: &ICudaEngine) -> Result<[Vec<Port>; 2], String> {
    let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
    for index in 0..engine.getNbIOTensors() {
        let name = engine.getIOTensorName(index);
        // SAFETY: the engine has this many names; each ends in zero and lives as long as the engine.
        let (dims, dtype, mode, text) = unsafe {
            let text = CStr::from_ptr(name).to_string_lossy().into_owned();
            (engine.getTensorShape(name), engine.getTensorDataType(name), engine.getTensorIOMode(name), text)
        };
        let dtype =
            element(dtype).ok_or_else(|| format!("`{text}` has an element type that planish does not handle"))?;
        let dim = |(axis, &size): (usize, &i64)| match size >= 0 {
            true => Dim::constant(size),
            false => Dim::symbol(&format!("{text}_dim_{axis}")),
        };
        let shape = Shape::new(sizes(&dims).iter().enumerate().map(dim));
        let port = Port { name: text.clone(), ty: TensorType::new(dtype, shape) };
        match mode {
            TensorIOMode::kINPUT => inputs.push(port),
            _ => outputs.push(port),
        }
    }
    Ok([inputs, outputs])
}

/// Whether an engine wants each input in the host's memory, as it does where sizes are computed from the values.
///
/// # Errors
/// The outputs that it writes there.
pub(super) fn on_host(engine: &ICudaEngine, inputs: &[Port], outputs: &[Port]) -> Result<Vec<bool>, String> {
    let is_on_host = |port: &Port| {
        let name = CString::new(port.name.as_str()).map_err(|e| e.to_string())?;
        // SAFETY: the name is that of an input or output and ends in zero.
        Ok(unsafe { engine.getTensorLocation(name.as_ptr()) } == TensorLocation::kHOST)
    };
    for port in outputs {
        if is_on_host(port)? {
            return Err(format!(
                "the engine writes the output `{}`, from which sizes are computed, to the host's memory, and planish reads \
                 outputs from the GPU's memory; leave the output out of the ONNX graph",
                port.name
            ));
        }
    }
    inputs.iter().map(is_on_host).collect()
}

/// The sizes that an engine takes.
pub(super) fn profiles(engine: &ICudaEngine, inputs: &[Port]) -> Vec<Profile> {
    let range = |port: &Port, profile: i32| {
        let name = CString::new(port.name.as_str()).ok()?;
        let shape = |selector| {
            // SAFETY: the name is that of an input and ends in zero; the engine has the profile.
            sizes(&unsafe { engine.getProfileShape(name.as_ptr(), profile, selector) }).to_vec()
        };
        let (min, opt) = (shape(OptProfileSelector::kMIN), shape(OptProfileSelector::kOPT));
        Some(InputRange { name: port.name.clone(), min, opt, max: shape(OptProfileSelector::kMAX) })
    };
    let profile = |index| Profile { inputs: inputs.iter().filter_map(|port| range(port, index)).collect() };
    (0..engine.getNbOptimizationProfiles()).map(profile).collect()
}

fn element(dtype: DataType) -> Option<DType> {
    Some(match dtype {
        DataType::kFLOAT => DType::F32,
        DataType::kHALF => DType::F16,
        DataType::kBF16 => DType::Bf16,
        DataType::kINT8 => DType::I8,
        DataType::kINT32 => DType::I32,
        DataType::kINT64 => DType::I64,
        DataType::kUINT8 => DType::U8,
        DataType::kBOOL => DType::Bool,
        _ => return None,
    })
}
