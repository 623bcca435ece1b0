//! The header of a plan, the file of an engine: read before TensorRT sees the file.

use std::io::{self, Read};
use std::path::Path;

use super::gpu::{Device, INSTEAD};
use super::options::Capability;
use super::version::Version;
use super::{ENTERPRISE, PRODUCT};

/// What the header of a plan of TensorRT-RTX says. Its layout was found by comparing plans of different sizes, GPUs and
/// versions. Plans of TensorRT have another one, which is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The version of the library that built it.
    pub version: Version,
    /// The GPUs that it runs on.
    pub capabilities: Vec<Capability>,
    /// The bytes of the whole file.
    pub bytes: u64,
    /// The bytes of its weights.
    pub weights: u64,
}

/// How another engine is built.
const BUILD: &str =
    "build it again: with `planish build-engine` if the artifact has its ONNX files, else with `planish compile`";

/// Why a file is no plan that can be loaded.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The file cannot be read.
    #[error("cannot read the engine: {0}")]
    Read(#[from] io::Error),
    /// The file is something else.
    #[error("it is no engine of {PRODUCT}: it does not begin with the header of one")]
    NoPlan,
    /// The file is cut off, or something follows the plan.
    #[error(
        "the engine is not whole: its header says {expected} bytes, and the file has {actual}; copy it again, or {BUILD}"
    )]
    Length {
        /// What the header says.
        expected: u64,
        /// The length of the file.
        actual: u64,
    },
    /// The file ends in the header.
    #[error(
        "the engine is cut off: the file has {actual} bytes, fewer than the header of an engine; copy it again, or {BUILD}"
    )]
    Header {
        /// The length of the file.
        actual: u64,
    },
    /// Another version of the library built it.
    #[error(
        "{PRODUCT} {built} built the engine and {PRODUCT} {present} is here; an engine runs on the version that built \
         it; {BUILD}"
    )]
    Version {
        /// The version that built it.
        built: Version,
        /// The version of the library.
        present: Version,
    },
    /// It was built for other GPUs.
    #[error(
        "the engine was built for {} and the GPU is {device} (sm{capability}); {}",
        names(.built),
        remedy(*.capability)
    )]
    Device {
        /// The GPUs that it was built for.
        built: Vec<Capability>,
        /// The name of the present GPU.
        device: String,
        /// Its compute capability.
        capability: u32,
    },
}

/// What runs on a GPU that an engine was not built for.
fn remedy(capability: u32) -> String {
    match Capability::ALL.iter().any(|known| known.number() == capability) {
        true => format!("{BUILD}, with --gpu sm{capability}"),
        false => {
            format!("TensorRT-RTX has no engines for sm{capability}; {INSTEAD}")
        }
    }
}

fn names(capabilities: &[Capability]) -> String {
    capabilities.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The first bytes of a plan of TensorRT-RTX.
const HEADER: usize = 64;
const MAGIC: &[u8] = b"vtrt";

impl Plan {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// When the file cannot be read, is no plan, or is cut off.
    pub fn read(path: &Path) -> Result<Self, PlanError> {
        let (file, length) = planish_files::open(path).map_err(io::Error::from)?;
        let mut header = Vec::new();
        file.take(HEADER as u64).read_to_end(&mut header)?;
        Self::parse(&header, length)
    }

    /// Reads the header from the first bytes of a file of this length.
    fn parse(header: &[u8], length: u64) -> Result<Self, PlanError> {
        if !header.starts_with(MAGIC) {
            return Err(PlanError::NoPlan);
        }
        let Ok(header) = <&[u8; HEADER]>::try_from(header) else {
            return Err(PlanError::Header { actual: length });
        };
        let number = |at: usize| {
            let bytes: [u8; 8] = std::array::from_fn(|i| header[at + i]);
            u64::from_le_bytes(bytes)
        };
        let [major, minor, patch, build] = std::array::from_fn(|i| u32::from(header[0x18 + i]));
        let bytes = number(0x10);
        if bytes != length {
            return Err(PlanError::Length { expected: bytes, actual: length });
        }
        let mask = number(0x20);
        let capabilities = Capability::ALL.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1);
        Ok(Self {
            version: Version { major, minor, patch, build },
            capabilities: capabilities.map(|(_, capability)| *capability).collect(),
            bytes,
            weights: number(0x38),
        })
    }

    /// Whether a library of this version and, where one is known, this GPU run it.
    ///
    /// # Errors
    /// What differs.
    pub fn runs_on(&self, present: Version, device: Option<&Device>) -> Result<(), PlanError> {
        if self.version != present {
            return Err(PlanError::Version { built: self.version, present });
        }
        match device {
            Some(device) if !ENTERPRISE && !self.capabilities.iter().any(|c| c.number() == device.capability) => {
                let (built, capability) = (self.capabilities.clone(), device.capability);
                Err(PlanError::Device { built, device: device.name.clone(), capability })
            }
            _ => Ok(()),
        }
    }
}
