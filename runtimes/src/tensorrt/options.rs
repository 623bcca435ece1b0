//! How engines are built.

use std::fmt;
use std::str::FromStr;

use planish_ir::DType;

use super::flags::Flag;

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

    /// Whether TensorRT-RTX has products of an element type for such a GPU.
    #[must_use]
    pub fn multiplies(self, dtype: DType) -> bool {
        match dtype {
            DType::F8E4M3FN => self >= Self::Sm89,
            DType::F32 | DType::Bf16 => self >= Self::Sm80,
            _ => true,
        }
    }

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

    /// As trtexec's `--tilingOptimizationLevel` has it.
    #[must_use]
    pub fn trtexec(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Fast => 1,
            Self::Moderate => 2,
            Self::Full => 3,
        }
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
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
    const ALL: [Self; 3] = [Self::None, Self::AmperePlus, Self::Same];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::AmperePlus => "ampere+",
            Self::Same => "same",
        }
    }

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
        let found = Self::ALL.into_iter().find(|level| level.name() == text);
        found.ok_or_else(|| format!("there is no level `{text}`; there are {}", Self::ALL.map(Self::name).join(", ")))
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
    /// Flags without a member of their own, of [`FLAGS`](super::FLAGS).
    pub flags: Vec<&'static Flag>,
    /// What an earlier build measured, for TensorRT.
    pub timing_cache: Option<Vec<u8>>,
}

impl BuildOptions {
    /// The option for which TensorRT-RTX's builder needs a GPU, as the command line spells it: weights that can be replaced.
    #[must_use]
    pub fn needs_gpu(&self) -> Option<String> {
        if self.refit {
            return Some("--refit".to_owned());
        }
        if self.strip {
            return Some("--strip-weights".to_owned());
        }
        let flag = self.flags.iter().find(|flag| flag.refits());
        flag.map(|flag| format!("--trt-flags {}", flag.name))
    }

    /// Whether the weights of the engine can be replaced by others.
    #[must_use]
    pub fn is_refittable(&self) -> bool {
        self.refit || self.flags.iter().any(|flag| flag.refits())
    }
}

/// A number of bytes: plain, with a unit of trtexec (B, and K, M, G for powers of 1024), or with KiB, MiB, GiB, kB, MB or GB.
#[must_use]
pub fn bytes_of(text: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 10] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("K", 1 << 10),
        ("M", 1 << 20),
        ("G", 1 << 30),
        ("B", 1),
    ];
    let unit = UNITS.iter().find_map(|(name, bytes)| Some((text.strip_suffix(name)?, *bytes)));
    let (number, bytes) = unit.unwrap_or((text, 1));
    number.trim_end().parse::<u64>().ok()?.checked_mul(bytes)
}

/// A number of bytes as [`bytes_of`] reads it: in MiB where that is a whole number.
#[must_use]
pub fn bytes_text(bytes: usize) -> String {
    if bytes.is_multiple_of(1 << 20) { format!("{}MiB", bytes >> 20) } else { bytes.to_string() }
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
    fn products_by_gpu() {
        let of = |dtype| Capability::ALL.iter().filter(|c| c.multiplies(dtype)).map(|c| c.number()).collect::<Vec<_>>();
        assert_eq!(of(DType::F8E4M3FN), [89, 120, 121]);
        assert_eq!((of(DType::F32), of(DType::Bf16)), (vec![80, 86, 89, 120, 121], of(DType::F32)));
        assert_eq!(of(DType::F16).len(), Capability::ALL.len());
    }

    #[test]
    fn sizes_have_units() {
        let sizes = [("4GiB", 4 << 30), ("512 MiB", 512 << 20), ("512M", 512 << 20), ("1K", 1024), ("2G", 2 << 30)];
        for (text, bytes) in sizes.into_iter().chain([("3GB", 3_000_000_000), ("7B", 7), ("65536", 65_536), ("0", 0)]) {
            assert_eq!(bytes_of(text), Some(bytes), "{text}");
        }
        assert_eq!([1 << 30, 1000].map(bytes_text), ["1024MiB", "1000"]);
        for text in ["", "GiB", "M", "-1GiB", "1.5GiB", "1T", "4 gigabytes", "99999999999999GiB"] {
            assert_eq!(bytes_of(text), None, "{text}");
        }
    }

    #[test]
    fn levels_of_compatibility_are_read_by_name() {
        let level = |text: &str| text.parse::<HardwareCompatibility>();
        assert_eq!(level("ampere+"), Ok(HardwareCompatibility::AmperePlus));
        assert_eq!(level("same").map(HardwareCompatibility::trtexec), Ok("sameComputeCapability"));
        assert_eq!(level("hopper").unwrap_err(), "there is no level `hopper`; there are none, ampere+, same");
    }
}
