//! Flags of the builder that [`BuildOptions`](super::BuildOptions) has no member for.

/// A flag of the builder.
#[derive(Clone, Copy, Debug)]
pub struct Flag {
    /// NVIDIA's name.
    pub name: &'static str,
    /// The option of trtexec that sets it, if there is one.
    pub trtexec: Option<&'static str>,
    #[cfg(feature = "trtx")]
    pub(super) builder: fn() -> trtx_sys::nvinfer1::BuilderFlag,
}

impl Flag {
    /// Whether it makes weights of the engine replaceable.
    #[must_use]
    pub fn refits(&self) -> bool {
        self.name.starts_with("REFIT")
    }

    /// The flag of a name.
    ///
    /// # Errors
    /// The names that there are.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        FLAGS.iter().find(|flag| flag.name == name).ok_or_else(|| {
            let names: Vec<&str> = FLAGS.iter().map(|flag| flag.name).collect();
            format!("there is no such flag; there are {}", names.join(", "))
        })
    }
}

macro_rules! flags {
    ($($name:literal, $builder:ident, $trtexec:expr;)*) => {
        /// All such flags.
        pub const FLAGS: &[Flag] = &[$(Flag {
            name: $name,
            trtexec: $trtexec,
            #[cfg(feature = "trtx")]
            builder: || trtx_sys::nvinfer1::BuilderFlag::$builder,
        }),*];
    };
}

flags! {
    "DEBUG", kDEBUG, None;
    "DISABLE_COMPILATION_CACHE", kDISABLE_COMPILATION_CACHE, Some("--noCompilationCache");
    "DISABLE_TIMING_CACHE", kDISABLE_TIMING_CACHE, Some("--noBuilderCache");
    "DISTRIBUTIVE_INDEPENDENCE", kDISTRIBUTIVE_INDEPENDENCE, Some("--distributiveIndependence");
    "EDITABLE_TIMING_CACHE", kEDITABLE_TIMING_CACHE, None;
    "ERROR_ON_TIMING_CACHE_MISS", kERROR_ON_TIMING_CACHE_MISS, Some("--errorOnTimingCacheMiss");
    "EXCLUDE_LEAN_RUNTIME", kEXCLUDE_LEAN_RUNTIME, Some("--excludeLeanRuntime");
    "GPU_FALLBACK", kGPU_FALLBACK, Some("--allowGPUFallback");
    "MONITOR_MEMORY", kMONITOR_MEMORY, Some("--monitorMemory");
    "REFIT_IDENTICAL", kREFIT_IDENTICAL, None;
    "REFIT_INDIVIDUAL", kREFIT_INDIVIDUAL, None;
    "STRICT_NANS", kSTRICT_NANS, None;
}
