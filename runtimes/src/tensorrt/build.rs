//! Building engines.

use std::ffi::CString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cxx::UniquePtr;
use trtx_sys::Dims64;
use trtx_sys::nvinfer1::{
    BuilderFlag, IBuilderConfig, IOptimizationProfile, MemoryPoolType, OptProfileSelector, ProfilingVerbosity,
    TilingOptimizationLevel,
};

use super::layers::Layers;
use super::library::Library;
use super::log::Message;
use super::options::{BuildOptions, Profile, Tiling, bytes_text};
use super::parse::{Network, ParserError, Refused};
use super::progress::{Monitor, Progress};
use super::stream::Stream;
use super::timing::TimingCache;
use super::{ENTERPRISE, PRODUCT, gpu};
use crate::Unavailable;

/// An engine that was built and written.
#[derive(Debug)]
pub struct Built {
    /// The bytes of the engine.
    pub bytes: u64,
    /// The kernels that the engine consists of.
    pub layers: Layers,
    /// Warnings of the parser and the builder.
    pub warnings: Vec<Message>,
    /// What the builder measured, for builds to come; TensorRT-RTX measures nothing.
    pub timing_cache: Option<Vec<u8>>,
    /// The time that the parser took.
    pub parsing: Duration,
    /// The time that the builder took.
    pub building: Duration,
}

/// Why no engine was built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The library, or the GPU that it needs, is not there.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The parser refuses the file.
    #[error("the parser of {PRODUCT} refuses {}:{}", .file.display(), listed(.errors))]
    Refused {
        /// The ONNX file.
        file: PathBuf,
        /// What it refuses.
        errors: Vec<ParserError>,
    },
    /// An option does not fit this product or library.
    #[error("the builder of {PRODUCT} does not take {option}: {reason}")]
    Option {
        /// The option, as the field of [`BuildOptions`].
        option: String,
        /// Why.
        reason: String,
    },
    /// The sizes of an input do not fit it.
    #[error("profile {profile} does not fit the input `{input}`: {reason}")]
    Profile {
        /// The index of the profile.
        profile: usize,
        /// The input.
        input: String,
        /// Why.
        reason: String,
    },
    /// The engine could not be written.
    #[error("the engine could not be written: {0}")]
    Write(#[source] io::Error),
    /// The caller cancelled the build.
    #[error("the build was cancelled")]
    Cancelled,
    /// The builder failed.
    #[error("{PRODUCT} could not build an engine of {}: {reason}", .file.display())]
    Failed {
        /// The ONNX file.
        file: PathBuf,
        /// Its errors.
        reason: String,
    },
}

fn listed(errors: &[ParserError]) -> String {
    errors.iter().map(|error| format!("\n  {error}")).collect()
}

/// Builds an engine of an ONNX file, whose external data lies beside it, and writes it piece by piece.
///
/// # Errors
/// See [`BuildError`].
pub fn build(
    library: &Library,
    onnx: &Path,
    profiles: &[Profile],
    options: &BuildOptions,
    progress: &dyn Progress,
    output: &mut dyn Write,
) -> Result<Built, BuildError> {
    check(library, options)?;
    let failed = |reason| BuildError::Failed { file: onnx.to_owned(), reason };
    let network = Network::new(library).map_err(|refused| match refused {
        Refused::Unavailable(unavailable) => BuildError::Unavailable(unavailable),
        Refused::Failed(reason) => failed(reason),
    })?;
    let mut building = Building { config: UniquePtr::null(), cache: None, monitor: Monitor::new(progress), network };
    let start = Instant::now();
    building.network.parse_file(onnx).map_err(|errors| BuildError::Refused { file: onnx.to_owned(), errors })?;
    let parsing = start.elapsed();
    building.configure(options)?;
    for (index, profile) in profiles.iter().enumerate() {
        building.add_profile(index, profile)?;
    }
    let start = Instant::now();
    let mut stream = Stream::new(output);
    let done = building.run(&mut stream);
    let written = stream.finish();
    let Network { logger, .. } = &building.network;
    let reason = || {
        let reason = logger.errors("the builder gave no reason");
        match options.workspace.filter(|_| lacks_memory(&reason)) {
            Some(bytes) => format!("{reason}; --workspace {} is too small for this model", bytes_text(bytes)),
            None => reason,
        }
    };
    let bytes = match (done, written) {
        _ if building.monitor.cancelled() => return Err(BuildError::Cancelled),
        (_, Err(error)) => return Err(BuildError::Write(error)),
        (true, Ok(bytes)) if bytes > 0 => bytes,
        _ => return Err(failed(reason())),
    };
    Ok(Built {
        bytes,
        layers: logger.layers().as_deref().map(Layers::parse).unwrap_or_default(),
        warnings: logger.warnings(),
        timing_cache: building.cache.as_ref().and_then(TimingCache::serialize),
        parsing,
        building: start.elapsed(),
    })
}

/// Whether an error of the builder is that the workspace is too small.
fn lacks_memory(reason: &str) -> bool {
    ["OutOfMemory", "workspace"].iter().any(|word| reason.contains(word))
}

/// Whether a library and this machine build engines with these options.
///
/// # Errors
/// When the library builds none, or there is no GPU and TensorRT needs one: TensorRT measures kernels, and some versions end
/// the process without a GPU; TensorRT-RTX needs one for weights that can be replaced.
pub fn check(library: &Library, options: &BuildOptions) -> Result<(), Unavailable> {
    library.builder()?;
    let option = options.needs_gpu();
    let (what, remedy) = match &option {
        _ if ENTERPRISE => ("the builder of TensorRT measures kernels on a GPU".to_owned(), String::new()),
        None => return Ok(()),
        Some(option) => (format!("the builder needs a GPU for {option}"), format!("leave out {option}, or ")),
    };
    let missing = |missing: Unavailable| Unavailable {
        reason: format!("{what}, and {}", missing.reason),
        remedy: format!("{remedy}build on a machine with an NVIDIA GPU and its driver"),
        ..missing
    };
    gpu::devices().map(drop).map_err(missing)
}

/// What a build consists of. The members are dropped in their order: the configuration knows the cache and the monitor,
/// the builder of the network outlives them all.
struct Building<'a> {
    config: UniquePtr<IBuilderConfig>,
    cache: Option<TimingCache>,
    monitor: Monitor<'a>,
    network: Network,
}

impl Building<'_> {
    fn configure(&mut self, options: &BuildOptions) -> Result<(), BuildError> {
        // SAFETY: the caller of `createBuilderConfig` owns the configuration.
        self.config = unsafe { UniquePtr::from_raw(self.network.builder.pin_mut().createBuilderConfig()) };
        if self.config.is_null() {
            let reason = self.network.logger.errors("it gave no reason");
            return Err(BuildError::Option { option: "a configuration".to_owned(), reason });
        }
        let refused = |option: &str, logger: &super::log::Logger| BuildError::Option {
            option: option.to_owned(),
            reason: logger.errors("it gave no reason"),
        };
        let logger = &self.network.logger;
        let mut config = self.config.pin_mut();
        // The list of layers is logged; the engine is the same.
        config.as_mut().setProfilingVerbosity(ProfilingVerbosity::kDETAILED);
        #[cfg(not(feature = "tensorrt"))]
        {
            use super::options::Capability;
            let capabilities = match options.capabilities.as_slice() {
                [] => Capability::DEFAULT,
                chosen => chosen,
            };
            let count = i32::try_from(capabilities.len()).unwrap_or(i32::MAX);
            let mut taken = config.as_mut().setNbComputeCapabilities(count);
            for (index, capability) in (0..).zip(capabilities) {
                taken &= config.as_mut().setComputeCapability(compute_capability(*capability), index);
            }
            if !taken {
                return Err(refused("the compute capabilities", logger));
            }
        }
        #[cfg(feature = "tensorrt")]
        if !options.capabilities.is_empty() {
            let reason = "it builds for the GPU of this machine".to_owned();
            return Err(BuildError::Option { option: "compute capabilities".to_owned(), reason });
        }
        #[cfg(not(feature = "tensorrt"))]
        if options.hardware_compatibility.is_some() {
            let reason =
                "an engine runs on all GPUs of the compute capabilities that it is built for; name them with --gpu";
            return Err(BuildError::Option {
                option: "--hardware-compatibility".to_owned(),
                reason: reason.to_owned(),
            });
        }
        #[cfg(feature = "tensorrt")]
        if let Some(level) = options.hardware_compatibility {
            use super::options::HardwareCompatibility;
            use trtx_sys::nvinfer1::HardwareCompatibilityLevel;
            config.as_mut().setHardwareCompatibilityLevel(match level {
                HardwareCompatibility::None => HardwareCompatibilityLevel::kNONE,
                HardwareCompatibility::AmperePlus => HardwareCompatibilityLevel::kAMPERE_PLUS,
                HardwareCompatibility::Same => HardwareCompatibilityLevel::kSAME_COMPUTE_CAPABILITY,
            });
        }
        for (flag, on) in [
            (BuilderFlag::kTF32, options.tf32),
            (BuilderFlag::kSPARSE_WEIGHTS, options.sparse_weights),
            (BuilderFlag::kVERSION_COMPATIBLE, options.version_compatible),
            (BuilderFlag::kREFIT, options.refit),
            (BuilderFlag::kSTRIP_PLAN, options.strip),
            (BuilderFlag::kWEIGHT_STREAMING, options.weight_streaming),
        ] {
            match on {
                true => config.as_mut().setFlag(flag),
                false => config.as_mut().clearFlag(flag),
            }
        }
        options.flags.iter().for_each(|flag| config.as_mut().setFlag((flag.builder)()));
        if let Some(workspace) = options.workspace {
            config.as_mut().setMemoryPoolLimit(MemoryPoolType::kWORKSPACE, workspace);
        }
        if let Some(level) = options.optimization_level {
            config.as_mut().setBuilderOptimizationLevel(level.into());
        }
        if let Some(streams) = options.aux_streams
            && !config.as_mut().setMaxAuxStreams(streams.into())
        {
            return Err(refused("the number of auxiliary streams", logger));
        }
        if let Some(tiling) = options.tiling {
            let level = match tiling {
                Tiling::None => TilingOptimizationLevel::kNONE,
                Tiling::Fast => TilingOptimizationLevel::kFAST,
                Tiling::Moderate => TilingOptimizationLevel::kMODERATE,
                Tiling::Full => TilingOptimizationLevel::kFULL,
            };
            if !config.as_mut().setTilingOptimizationLevel(level) {
                return Err(refused("the tiling level", logger));
            }
        }
        // SAFETY: the monitor is dropped after the configuration.
        unsafe { config.as_mut().setProgressMonitor(self.monitor.interface()) };
        if ENTERPRISE {
            self.cache = TimingCache::new(self.config.pin_mut(), options.timing_cache.as_deref());
        }
        Ok(())
    }

    fn add_profile(&mut self, index: usize, profile: &Profile) -> Result<(), BuildError> {
        let wrong =
            |input: &str, reason: String| BuildError::Profile { profile: index, input: input.to_owned(), reason };
        let created = self.network.builder.pin_mut().createOptimizationProfile();
        // SAFETY: null, or a profile that the builder owns and that nothing else points to.
        let Some(created) = (unsafe { created.as_mut() }) else {
            return Err(wrong("", self.network.logger.errors("the builder made no profile")));
        };
        // SAFETY: objects of TensorRT do not move.
        let mut created = unsafe { std::pin::Pin::new_unchecked(created) };
        for range in &profile.inputs {
            let name = CString::new(range.name.as_str())
                .map_err(|_| wrong(&range.name, "its name has a zero byte".to_owned()))?;
            let sizes = [
                (OptProfileSelector::kMIN, &range.min),
                (OptProfileSelector::kOPT, &range.opt),
                (OptProfileSelector::kMAX, &range.max),
            ];
            for (selector, shape) in sizes {
                // SAFETY: the name ends in zero and is only read.
                if !unsafe { created.as_mut().setDimensions(name.as_ptr(), selector, &Dims64::from_slice(shape)) } {
                    let reason = format!("{shape:?} is not taken: {}", self.network.logger.errors("it gave no reason"));
                    return Err(wrong(&range.name, reason));
                }
            }
        }
        let created: *const IOptimizationProfile = &raw const *created;
        // SAFETY: the profile is alive, as its builder is.
        if unsafe { self.config.pin_mut().addOptimizationProfile(created) } < 0 {
            let input = profile.inputs.first().map_or("", |range| range.name.as_str());
            return Err(wrong(input, self.network.logger.errors("it gave no reason")));
        }
        Ok(())
    }

    /// Whether the engine was built and written.
    fn run(&mut self, stream: &mut Stream<'_>) -> bool {
        let Network { builder, network, .. } = &mut self.network;
        let (network, config) = (network.pin_mut(), self.config.pin_mut());
        builder.pin_mut().buildSerializedNetworkToStream(network, config, stream.interface())
    }
}

#[cfg(not(feature = "tensorrt"))]
fn compute_capability(capability: super::options::Capability) -> trtx_sys::nvinfer1::ComputeCapability {
    use super::options::Capability;
    use trtx_sys::nvinfer1::ComputeCapability;
    match capability {
        Capability::Sm75 => ComputeCapability::kSM75,
        Capability::Sm80 => ComputeCapability::kSM80,
        Capability::Sm86 => ComputeCapability::kSM86,
        Capability::Sm89 => ComputeCapability::kSM89,
        Capability::Sm120 => ComputeCapability::kSM120,
        Capability::Sm121 => ComputeCapability::kSM121,
    }
}
