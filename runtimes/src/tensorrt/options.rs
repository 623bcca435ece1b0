//! How engines are built.

use std::fmt;
use std::str::FromStr;

/// The sizes that an engine takes: for each input with open dimensions the smallest, the usual and the largest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The inputs with open dimensions.
    pub inputs: Vec<InputRange>,
}

/// The sizes of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRange {
    /// The input's name.
    pub name: String,
    /// The smallest shape.
    pub min: Vec<i64>,
    /// The shape that kernels are chosen for.
    pub opt: Vec<i64>,
    /// The largest shape.
    pub max: Vec<i64>,
}

/// A kind of GPU, by its compute capability, e.g. `sm89`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Capability {
    /// Turing.
    Sm75,
    /// Ampere, A100.
    Sm80,
    /// Ampere, GeForce RTX 30.
    Sm86,
    /// Ada, GeForce RTX 40.
    Sm89,
    /// Blackwell, GeForce RTX 50.
    Sm120,
    /// Blackwell, DGX Spark.
    Sm121,
}

impl Capability {
    /// Those that TensorRT-RTX builds engines for, in the order of the bits of a plan's header.
    pub const ALL: &[Self] = &[Self::Sm75, Self::Sm80, Self::Sm86, Self::Sm89, Self::Sm120, Self::Sm121];

    /// Those that engines are built for unless told otherwise: from Ampere on. Turing has no kernels for products of
    /// float32 and bfloat16.
    pub const DEFAULT: &[Self] = &[Self::Sm80, Self::Sm86, Self::Sm89, Self::Sm120, Self::Sm121];

    /// The number, e.g. 89.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::Sm75 => 75,
            Self::Sm80 => 80,
            Self::Sm86 => 86,
            Self::Sm89 => 89,
            Self::Sm120 => 120,
            Self::Sm121 => 121,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm{}", self.number())
    }
}

impl FromStr for Capability {
    type Err = String;

    /// `sm89`, `89` or `8.9`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_prefix("sm").or_else(|| text.strip_prefix("SM")).unwrap_or(text).replace('.', "");
        let found = Self::ALL.iter().find(|capability| number.parse() == Ok(capability.number()));
        found.copied().ok_or_else(|| {
            let names: Vec<String> = Self::ALL.iter().map(ToString::to_string).collect();
            format!("TensorRT-RTX builds no engines for `{text}`; it builds them for {}", names.join(", "))
        })
    }
}

/// Options of the builder by NVIDIA's names, beside those that [`BuildOptions`] has by a name of their own.
pub const FLAGS: &[&str] = &[
    "DEBUG",
    "DISABLE_COMPILATION_CACHE",
    "DISABLE_TIMING_CACHE",
    "ERROR_ON_TIMING_CACHE_MISS",
    "EXCLUDE_LEAN_RUNTIME",
    "GPU_FALLBACK",
    "MONITOR_MEMORY",
    "REFIT_IDENTICAL",
    "REFIT_INDIVIDUAL",
    "STRICT_NANS",
];

/// How far the builder goes in splitting layers into tiles that fit the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tiling {
    /// Not at all.
    None,
    /// By rules.
    Fast,
    /// By rules, and by some measurements.
    Moderate,
    /// By measurements.
    Full,
}

impl Tiling {
    const ALL: [Self; 4] = [Self::None, Self::Fast, Self::Moderate, Self::Full];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Fast => "fast",
            Self::Moderate => "moderate",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for Tiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tiling {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|tiling| tiling.name() == text);
        found.ok_or_else(|| {
            format!("there is no tiling level `{text}`; there are {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

/// The GPUs that an engine of TensorRT runs on beside the one that builds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HardwareCompatibility {
    /// None.
    None,
    /// All from Ampere on.
    AmperePlus,
    /// Those of the same compute capability.
    Same,
}

impl HardwareCompatibility {
    const ALL: [(&str, Self); 3] = [("none", Self::None), ("ampere+", Self::AmperePlus), ("same", Self::Same)];

    /// As trtexec's `--hardwareCompatibilityLevel` has it.
    #[must_use]
    pub fn trtexec(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::AmperePlus => "ampere+",
            Self::Same => "sameComputeCapability",
        }
    }
}

impl FromStr for HardwareCompatibility {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, level)| *level).ok_or_else(|| {
            let names = Self::ALL.map(|(name, _)| name).join(", ");
            format!("there is no level `{text}`; there are {names}")
        })
    }
}

/// Options of the builder. Each has the builder's own default where it is absent.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools)]
pub struct BuildOptions {
    /// The GPUs that the engine runs on, for TensorRT-RTX; those of [`Capability::DEFAULT`] where there is none. TensorRT
    /// builds for the present GPU.
    pub capabilities: Vec<Capability>,
    /// The most memory for temporary values of a layer, in bytes.
    pub workspace: Option<usize>,
    /// How long the builder looks for faster kernels, 0 to 5.
    pub optimization_level: Option<u8>,
    /// The most streams beside the main one.
    pub aux_streams: Option<u8>,
    /// How far layers are split into tiles.
    pub tiling: Option<Tiling>,
    /// Whether products of float32 may round their operands to TF32.
    pub tf32: bool,
    /// Whether weights with two zeros in four are products of sparse matrices.
    pub sparse_weights: bool,
    /// Whether later versions of TensorRT load the engine.
    pub version_compatible: bool,
    /// Whether weights can be replaced in the engine.
    pub refit: bool,
    /// Whether the weights that can be replaced are left out of the engine.
    pub strip: bool,
    /// Whether weights may stay in the host's memory while the engine runs.
    pub weight_streaming: bool,
    /// The other GPUs that the engine runs on, for TensorRT. Engines of TensorRT-RTX run on those of `capabilities`.
    pub hardware_compatibility: Option<HardwareCompatibility>,
    /// More options by the names of [`FLAGS`].
    pub flags: Vec<&'static str>,
    /// What an earlier build measured, for TensorRT.
    pub timing_cache: Option<Vec<u8>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_as_they_are_shown() {
        for capability in Capability::ALL {
            assert_eq!(capability.to_string().parse(), Ok(*capability));
        }
        assert_eq!("8.9".parse(), Ok(Capability::Sm89));
        assert_eq!(
            "sm90".parse::<Capability>().unwrap_err(),
            "TensorRT-RTX builds no engines for `sm90`; it builds them for sm75, sm80, sm86, sm89, sm120, sm121"
        );
    }

    #[test]
    fn levels_of_compatibility_are_read_by_name() {
        let level = |text: &str| text.parse::<HardwareCompatibility>();
        assert_eq!(level("ampere+"), Ok(HardwareCompatibility::AmperePlus));
        assert_eq!(level("same").map(HardwareCompatibility::trtexec), Ok("sameComputeCapability"));
        assert_eq!(level("hopper").unwrap_err(), "there is no level `hopper`; there are none, ampere+, same");
    }
}
