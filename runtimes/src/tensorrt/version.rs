//! Versions of TensorRT.

use std::fmt;

/// The version of a library or of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Changes with what programs call.
    pub major: u32,
    /// Changes with what is added.
    pub minor: u32,
    /// Changes with what is mended.
    pub patch: u32,
    /// Counts builds.
    pub build: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{}", self.major, self.minor, self.patch, self.build)
    }
}
