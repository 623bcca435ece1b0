//! How engines are loaded and run.

use std::fmt;
use std::str::FromStr;

use super::bytes_of;

/// How engines are loaded and run.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// How many bytes of the weights that may be streamed are in the GPU's memory.
    pub weight_streaming_budget: WeightStreamingBudget,
    /// Whether `run_bound` launches a recorded CUDA graph.
    pub cuda_graph: bool,
    /// When TensorRT-RTX compiles kernels for the shapes of a run. TensorRT has all its kernels in the engine.
    pub kernel_specialization: KernelSpecialization,
    /// Whether the kernels that TensorRT-RTX compiles when it loads an engine are kept in the user's folder of caches.
    pub keep_kernels: bool,
    /// Is told of what goes wrong and hurts nothing but speed.
    pub warn: fn(&str),
}

impl Default for LoadOptions {
    /// All weights on the GPU, with CUDA graphs, kernels for the shapes of each run, and the cache of kernels; warnings go
    /// nowhere.
    fn default() -> Self {
        Self {
            weight_streaming_budget: WeightStreamingBudget::default(),
            cuda_graph: true,
            kernel_specialization: KernelSpecialization::default(),
            keep_kernels: true,
            warn: |_| {},
        }
    }
}

/// How many bytes of the weights that may be streamed are in the GPU's memory, as trtexec's `--weightStreamingBudget` has
/// it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum WeightStreamingBudget {
    /// All: nothing is streamed (-2).
    #[default]
    Off,
    /// As many as TensorRT chooses (-1).
    Automatic,
    /// A share of them, from 0 to 100.
    Percent(f64),
    /// So many bytes.
    Bytes(u64),
}

impl WeightStreamingBudget {
    /// The budget in bytes for an engine with so many bytes of weights that may be streamed, of which TensorRT would choose
    /// `automatic`.
    #[must_use]
    pub fn bytes(self, streamable: i64, automatic: i64) -> i64 {
        match self {
            Self::Off => streamable,
            Self::Automatic => automatic,
            // Weights have fewer bytes than a double counts exactly.
            Self::Percent(percent) => (streamable as f64 * percent / 100.0) as i64,
            Self::Bytes(bytes) => i64::try_from(bytes).unwrap_or(i64::MAX).min(streamable),
        }
    }
}

impl fmt::Display for WeightStreamingBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("-2"),
            Self::Automatic => f.write_str("-1"),
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Bytes(bytes) => write!(f, "{bytes}"),
        }
    }
}

impl FromStr for WeightStreamingBudget {
    type Err = String;

    /// -2, -1, a share such as `25%`, or bytes as [`bytes_of`] reads them.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "expected -2 (nothing is streamed), -1 (TensorRT chooses), a share such as 25%, or bytes such as 512M"
                .to_owned()
        };
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.parse::<f64>().ok().filter(|percent| (0.0..=100.0).contains(percent));
            return percent.map(Self::Percent).ok_or_else(wrong);
        }
        match text {
            "-2" => return Ok(Self::Off),
            "-1" => return Ok(Self::Automatic),
            _ => {}
        }
        bytes_of(text).map(Self::Bytes).ok_or_else(wrong)
    }
}

/// When TensorRT-RTX compiles kernels for the shapes of a run, where an engine takes several: the shape-specialized kernels of
/// `DynamicShapesKernelSpecializationStrategy`. Without them a run uses fallback kernels, which take all shapes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelSpecialization {
    /// In front of the first run of new shapes, which waits for them.
    #[default]
    Eager,
    /// In the background, after a run that uses fallback kernels.
    Lazy,
    /// Never: all runs use fallback kernels.
    None,
}

impl KernelSpecialization {
    /// All, with what each is called.
    const NAMES: [(Self, &'static str); 3] = [(Self::Eager, "eager"), (Self::Lazy, "lazy"), (Self::None, "none")];
}

impl fmt::Display for KernelSpecialization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Self::NAMES.iter().filter(|(of, _)| of == self).try_for_each(|(_, name)| f.write_str(name))
    }
}

impl FromStr for KernelSpecialization {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(of, _)| *of).ok_or_else(|| {
            "expected eager (compiled in front of the first run of new shapes), lazy (in the background) or none (never)"
                .to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specializations_are_read_as_they_are_written() {
        for (of, name) in KernelSpecialization::NAMES {
            assert_eq!((of.to_string().as_str(), name.parse()), (name, Ok(of)));
        }
        assert!("sometimes".parse::<KernelSpecialization>().unwrap_err().starts_with("expected eager"));
    }

    #[test]
    fn budgets_are_those_of_trtexec() {
        let budget = |text: &str| text.parse::<WeightStreamingBudget>();
        assert_eq!(budget("-2"), Ok(WeightStreamingBudget::Off));
        assert_eq!(budget("-1"), Ok(WeightStreamingBudget::Automatic));
        assert_eq!(budget("12.5%"), Ok(WeightStreamingBudget::Percent(12.5)));
        assert_eq!(budget("0"), Ok(WeightStreamingBudget::Bytes(0)));
        assert_eq!(budget("3M"), Ok(WeightStreamingBudget::Bytes(3 << 20)));
        assert_eq!(budget("2GiB"), Ok(WeightStreamingBudget::Bytes(2 << 30)));
        for text in ["", "-3", "101%", "-1%", "%", "M", "1.5M", "1T", "99999999999999G", "NaN%"] {
            assert!(budget(text).unwrap_err().starts_with("expected -2"), "{text}");
        }
    }

    #[test]
    fn budgets_in_bytes() {
        let bytes = |budget: WeightStreamingBudget| budget.bytes(1000, 300);
        assert_eq!(bytes(WeightStreamingBudget::Off), 1000);
        assert_eq!(bytes(WeightStreamingBudget::Automatic), 300);
        assert_eq!(bytes(WeightStreamingBudget::Percent(25.0)), 250);
        assert_eq!(bytes(WeightStreamingBudget::Percent(0.0)), 0);
        assert_eq!(bytes(WeightStreamingBudget::Bytes(10)), 10);
        assert_eq!(bytes(WeightStreamingBudget::Bytes(u64::MAX)), 1000);
    }
}
