//! The options of TensorRT's builder.

mod console;
mod finish;
mod summary;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use clap::FromArgMatches;
use planish_artifact::backend::RuntimeSettings;
use planish_artifact::manifest::Manifest;
use planish_compiler::engine::{EngineOptions, Profiles, default_gpus, shell_word, trtexec};
use planish_runtimes::tensorrt::{BuildOptions, Capability, Flag, HardwareCompatibility, Tiling, bytes_of, bytes_text};
use serde_json::Value;

use super::{Usage, print};

pub(super) use console::EngineConsole;
pub(super) use finish::{FinishContext, finish};
pub(super) use summary::files;

/// How engines are built.
#[derive(clap::Args)]
#[command(next_help_heading = "TensorRT")]
pub(super) struct EngineArguments {
    /// The GPUs that the engine runs on, by their compute capabilities, sm75, sm80, sm86, sm89, sm120, sm121 [default:
    /// the GPU of this machine; without one all but sm75]
    #[arg(long, value_name = "CAPABILITIES", value_delimiter = ',')]
    gpu: Vec<Capability>,
    /// The most memory for temporary values of a layer, e.g. 4GiB or 512M [default: that of the GPU]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    workspace: Option<usize>,
    /// How long the builder looks for faster kernels, 0 to 5 [default: the builder's, 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=5))]
    builder_optimization_level: Option<u8>,
    /// Let products of float32 round their operands to TF32
    #[arg(long)]
    tf32: bool,
    /// Compute products with weights that have two zeros in four as sparse ones
    #[arg(long)]
    sparse_weights: bool,
    /// Let later versions of TensorRT load the engine. TensorRT-RTX does not have this
    #[arg(long)]
    version_compatible: bool,
    /// Let programs replace the weights of the engine. The builder needs a GPU for this
    #[arg(long)]
    refit: bool,
    /// Leave the weights that can be replaced out of the engine, and keep the ONNX files: `planish refit-engine` puts the
    /// weights in. The builder needs a GPU for this
    #[arg(long)]
    strip_weights: bool,
    /// Let weights stay in the host's memory while the engine runs
    #[arg(long)]
    weight_streaming: bool,
    /// The most streams beside the main one
    #[arg(long, value_name = "N")]
    max_aux_streams: Option<u8>,
    /// How far layers are split into tiles that fit the GPU's cache: none, fast, moderate, full
    #[arg(long, value_name = "LEVEL")]
    tiling: Option<Tiling>,
    /// The other GPUs that an engine of TensorRT runs on: none, ampere+ (all from Ampere on), same (those of the same
    /// compute capability). Engines of TensorRT-RTX run on those of --gpu, and do not take this option
    #[arg(long, value_name = "LEVEL")]
    hardware_compatibility: Option<HardwareCompatibility>,
    /// More flags of the builder by NVIDIA's names, e.g. STRICT_NANS,MONITOR_MEMORY
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = Flag::named)]
    trt_flags: Vec<&'static Flag>,
    /// Keep the ONNX files beside the engines
    #[arg(long)]
    keep_onnx: bool,
}

impl EngineArguments {
    /// What the `engine` of a recipe says: these options by their names, with `_` for `-`.
    ///
    /// # Errors
    /// When there is no such option, or its value is wrong.
    pub(super) fn of(members: &BTreeMap<String, Value>) -> Result<Self> {
        let mut words = Vec::new();
        for (name, value) in members {
            let name = name.replace('_', "-");
            let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            match value {
                Value::Bool(false) => {}
                Value::Bool(true) => words.push(format!("--{name}")),
                Value::Array(values) => {
                    words.push(format!("--{name}={}", values.iter().map(text).collect::<Vec<_>>().join(",")));
                }
                value => words.push(format!("--{name}={}", text(value))),
            }
        }
        let command = clap::Command::new("engine").no_binary_name(true).disable_help_flag(true);
        let matches = Self::augment_args(command).try_get_matches_from(words);
        let parsed = matches.and_then(|matches| Self::from_arg_matches(&matches));
        parsed.map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            Usage(format!("`engine` of the recipe: {}", first.trim_start_matches("error: "))).into()
        })
    }

    /// The options that were given and say how engines are built, with their values; a flag has an empty one.
    fn words(&self) -> Vec<(&'static str, String)> {
        let flag = |given: bool| given.then(String::new);
        let list = |values: Vec<String>| Some(values.join(",")).filter(|list| !list.is_empty());
        let number = |value: Option<u8>| value.map(|value| value.to_string());
        let all = [
            ("--gpu", list(self.gpu.iter().map(ToString::to_string).collect())),
            ("--workspace", self.workspace.map(bytes_text)),
            ("--builder-optimization-level", number(self.builder_optimization_level)),
            ("--tf32", flag(self.tf32)),
            ("--sparse-weights", flag(self.sparse_weights)),
            ("--version-compatible", flag(self.version_compatible)),
            ("--refit", flag(self.refit)),
            ("--strip-weights", flag(self.strip_weights)),
            ("--weight-streaming", flag(self.weight_streaming)),
            ("--max-aux-streams", number(self.max_aux_streams)),
            ("--tiling", self.tiling.map(|tiling| tiling.to_string())),
            ("--hardware-compatibility", self.hardware_compatibility.map(|level| level.name().to_owned())),
            ("--trt-flags", list(self.trt_flags.iter().map(|flag| flag.name.to_owned()).collect())),
            ("--keep-onnx", flag(self.keep_onnx)),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// The command that builds the engines of an artifact with these options.
    fn command(&self, folder: &Path) -> String {
        let mut command = format!("planish build-engine {}", shell_word(&folder.display().to_string()));
        for (name, value) in self.words() {
            command += &format!(" {name}");
            if !value.is_empty() {
                command += &format!(" {value}");
            }
        }
        command
    }

    /// What these say.
    pub(super) fn options(&self, settings: &RuntimeSettings) -> EngineOptions {
        let build = BuildOptions {
            capabilities: self.gpu.clone(),
            workspace: self.workspace,
            optimization_level: self.builder_optimization_level,
            aux_streams: self.max_aux_streams,
            tiling: self.tiling,
            tf32: self.tf32,
            sparse_weights: self.sparse_weights,
            version_compatible: self.version_compatible,
            refit: self.refit,
            strip: self.strip_weights,
            weight_streaming: self.weight_streaming,
            hardware_compatibility: self.hardware_compatibility,
            flags: self.trt_flags.clone(),
            timing_cache: None,
        };
        EngineOptions { build, library: settings.trt_library.clone(), keep_onnx: self.keep_onnx }
    }

    /// Prints the commands of NVIDIA's tool: for the ONNX files of an artifact that will be at
    /// `folder`. `kept` says that the ONNX files stay without --keep-onnx too.
    pub(super) fn print_trtexec(
        &self,
        folder: &Path,
        manifest: &Manifest,
        profiles: &Profiles,
        kept: bool,
    ) -> Result<()> {
        let EngineOptions { mut build, .. } = self.options(&RuntimeSettings::default());
        if build.capabilities.is_empty() {
            build.capabilities = default_gpus(manifest).capabilities;
        }
        let folder = std::path::absolute(folder).with_context(|| format!("cannot resolve {}", folder.display()))?;
        let mut text = String::new();
        if !self.keep_onnx && !self.strip_weights && !kept {
            text += "# planish keeps the ONNX files only with --keep-onnx\n";
        }
        for part in &manifest.parts {
            let Some(onnx) = part.files.first() else { continue };
            let engine = folder.join(manifest.layout(&part.name).engine());
            let ending = engine.extension().unwrap_or_default().to_string_lossy().into_owned();
            // The manifest of the artifact knows the length of its own engine.
            let engine = engine.with_extension(format!("trtexec.{ending}"));
            let command = trtexec(&folder.join(onnx), &engine, profiles.part(&part.name), &build);
            text += &format!("{}\n", command.line());
            for flag in command.without {
                text += &format!("# the tool has no option for {flag}\n");
            }
        }
        print(&text)
    }
}

/// What follows `--workspace`.
fn size(text: &str) -> Result<usize, String> {
    let size = bytes_of(text).and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0);
    size.ok_or_else(|| "expected a size, e.g. 4GiB, 512M or a number of bytes".to_owned())
}
