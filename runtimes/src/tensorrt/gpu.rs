//! GPUs, as the driver names them.

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name, e.g. `NVIDIA GeForce RTX 4090`.
    pub name: String,
    /// Its compute capability, e.g. 89.
    pub capability: u32,
}
