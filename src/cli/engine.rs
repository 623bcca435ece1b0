//! The options of TensorRT's builder, and what a person sees while it builds.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Mutex;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use planish_runtimes::tensorrt::{BuildOptions, Capability, ENTERPRISE, FLAGS, HardwareCompatibility, Tiling};

use super::{Usage, bytes_text, print, warn};
use crate::artifact::engine::EngineManifest;
use crate::artifact::manifest::{File, Manifest};
use crate::backend::RuntimeSettings;
use crate::engine::{EngineObserver, EngineOptions, EngineReport, Profiles, default_capabilities, trtexec};

/// How engines are built.
#[derive(clap::Args)]
#[command(next_help_heading = "TensorRT")]
pub(super) struct EngineArguments {
    /// The GPUs that the engine runs on, by their compute capabilities, sm75, sm80, sm86, sm89, sm120, sm121 [default:
    /// the GPU of this machine; without one all but sm75]
    #[arg(long, value_name = "SM,SM", value_delimiter = ',')]
    gpu: Vec<Capability>,
    /// The most memory for temporary values of a layer, e.g. 4GiB [default: that of the GPU]
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
    /// Let later versions of TensorRT load the engine
    #[arg(long)]
    version_compatible: bool,
    /// Let programs replace the weights of the engine. The builder needs a GPU for this
    #[arg(long)]
    refit: bool,
    /// Leave the weights that can be replaced out of the engine. The builder needs a GPU for this
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
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = flag)]
    trt_flags: Vec<&'static str>,
    /// Keep the ONNX files beside the engines
    #[arg(long)]
    keep_onnx: bool,
    /// Print the command of NVIDIA's tool (tensorrt_rtx, or trtexec) that builds the same engine of each ONNX file
    #[arg(long, conflicts_with = "json")]
    print_trtexec: bool,
}

impl EngineArguments {
    /// The first of these options that was given.
    pub(super) fn given(&self) -> Option<&'static str> {
        [
            (!self.gpu.is_empty(), "--gpu"),
            (self.workspace.is_some(), "--workspace"),
            (self.builder_optimization_level.is_some(), "--builder-optimization-level"),
            (self.tf32, "--tf32"),
            (self.sparse_weights, "--sparse-weights"),
            (self.version_compatible, "--version-compatible"),
            (self.refit, "--refit"),
            (self.strip_weights, "--strip-weights"),
            (self.weight_streaming, "--weight-streaming"),
            (self.max_aux_streams.is_some(), "--max-aux-streams"),
            (self.tiling.is_some(), "--tiling"),
            (self.hardware_compatibility.is_some(), "--hardware-compatibility"),
            (!self.trt_flags.is_empty(), "--trt-flags"),
            (self.keep_onnx, "--keep-onnx"),
            (self.print_trtexec, "--print-trtexec"),
        ]
        .into_iter()
        .find_map(|(given, name)| given.then_some(name))
    }

    /// Refuses options that the builder of this program does not have.
    pub(super) fn check(&self) -> Result<()> {
        match self.hardware_compatibility {
            Some(_) if !ENTERPRISE => Err(Usage(
                "--hardware-compatibility is an option of TensorRT, and this planish was built for TensorRT-RTX, whose \
                 engines run on all GPUs of the compute capabilities that --gpu names"
                    .to_owned(),
            )
            .into()),
            _ => Ok(()),
        }
    }

    /// What these say.
    pub(super) fn options(&self, settings: &RuntimeSettings, manifest: &Manifest) -> EngineOptions {
        let build = BuildOptions {
            capabilities: if self.gpu.is_empty() { default_capabilities(manifest) } else { self.gpu.clone() },
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

    /// Prints the commands of NVIDIA's tool, if that was asked for: for the ONNX files of an artifact that will be at
    /// `folder`. `kept` says that the ONNX files stay without --keep-onnx too.
    pub(super) fn print_trtexec(
        &self,
        folder: &Path,
        manifest: &Manifest,
        profiles: &Profiles,
        kept: bool,
    ) -> Result<()> {
        if !self.print_trtexec {
            return Ok(());
        }
        let build = self.options(&RuntimeSettings::default(), manifest).build;
        let mut text = String::new();
        if !self.keep_onnx && !kept {
            text += "# planish keeps the ONNX files only with --keep-onnx\n";
        }
        for part in &manifest.parts {
            let Some(onnx) = part.files.first() else { continue };
            let engine = folder.join(manifest.layout(&part.name).engine());
            let command = trtexec(&folder.join(onnx), &engine, profiles.part(&part.name), &build);
            text += &format!("{}\n", command.line());
            for flag in command.without {
                text += &format!("# the tool has no option for {flag}\n");
            }
        }
        print(&text)
    }
}

/// What follows `--trt-flags`.
fn flag(name: &str) -> Result<&'static str, String> {
    let found = FLAGS.iter().find(|flag| **flag == name);
    found.copied().ok_or_else(|| format!("there is no such flag; there are {}", FLAGS.join(", ")))
}

/// A number of bytes: `512MiB`, `4GiB`, `2GB`, or plain bytes.
fn size(text: &str) -> Result<usize, String> {
    const UNITS: [(&str, usize); 6] =
        [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)];
    let unit = UNITS.iter().find_map(|(name, bytes)| Some((text.strip_suffix(name)?, *bytes)));
    let (number, bytes) = unit.unwrap_or((text, 1));
    let number = number.trim_end().parse::<usize>().ok();
    let size = number.and_then(|number| number.checked_mul(bytes)).filter(|size| *size > 0);
    size.ok_or_else(|| "expected a size, e.g. 4GiB, 512MiB or a number of bytes".to_owned())
}

/// The line of a summary about an engine: `model.engine 2.5 MB` and what it is.
fn line(engine: &EngineManifest, report: Option<&EngineReport>) -> String {
    let EngineManifest { file, bytes, product, version, capabilities, profiles, layers, .. } = engine;
    let mut text = format!(
        "  {file} {}, by {product} {version} for {}\n    profiles: {profiles}; layers: {}; regions: {}; kernels of \
         attention: {}\n",
        bytes_text(*bytes),
        capabilities.join(", "),
        layers.count,
        layers.regions,
        layers.attentions,
    );
    if let Some(EngineReport { seconds, peak_memory, .. }) = report {
        let peak = peak_memory.map(|peak| format!(", {} peak memory", bytes_text(peak))).unwrap_or_default();
        text += &format!("    built in {seconds:.2} s{peak}\n");
    }
    text
}

/// The lines of a summary about the files of an artifact.
pub(super) fn files(manifest: &Manifest, reports: &[EngineReport]) -> String {
    let one = |file: &File| {
        let part = manifest
            .parts
            .iter()
            .find_map(|part| Some((part, part.engine.as_ref()?)).filter(|(_, e)| e.file == file.name));
        match part {
            Some((part, engine)) => line(engine, reports.iter().find(|report| report.part == part.name)),
            None => format!("  {} {}\n", file.name, bytes_text(file.bytes)),
        }
    };
    manifest.files.iter().map(one).collect()
}

/// Says that options are for another target.
pub(super) fn no_engines(option: &str, target: &str) -> anyhow::Error {
    Usage(format!("{option} is for engines of TensorRT, and target {target} has none; add --target trt")).into()
}

/// What has to be said of an artifact whose engines could not be built.
pub(super) fn unfinished(folder: &Path) -> String {
    let folder = folder.display();
    format!("{folder} has its ONNX files and profiles.json, and no engine; `planish build-engine {folder}` builds it")
}

/// Warnings and the builder's phases for a person; nothing of the phases in a pipe.
pub(super) struct EngineConsole {
    bar: ProgressBar,
    /// The phases in progress, from outer to inner ones, with their numbers of steps.
    phases: Mutex<Phases>,
}

#[derive(Default)]
struct Phases {
    part: String,
    running: Vec<String>,
    steps: BTreeMap<String, u32>,
}

impl EngineConsole {
    pub(super) fn new() -> Self {
        let terminal = io::stderr().is_terminal();
        let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len}, {elapsed}") {
            bar.set_style(style);
        }
        Self { bar, phases: Mutex::default() }
    }

    fn with(&self, change: impl FnOnce(&mut Phases)) {
        let mut phases = self.phases.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut phases);
        let phase = phases.running.last().cloned().unwrap_or_default();
        self.bar.set_length(phases.steps.get(&phase).copied().unwrap_or(0).into());
        self.bar.set_message(format!("building the engine of {}: {phase}", phases.part));
    }
}

impl EngineObserver for EngineConsole {
    fn warning(&self, text: &str) {
        self.bar.suspend(|| warn(text));
    }

    fn begin_part(&self, part: &str) {
        // The bar of the part before is finished, and draws nothing more.
        self.bar.reset();
        self.with(|phases| *phases = Phases { part: part.to_owned(), ..Phases::default() });
    }

    fn begin_phase(&self, phase: &str, _: Option<&str>, steps: u32) {
        self.bar.set_position(0);
        self.with(|phases| {
            phases.running.push(phase.to_owned());
            phases.steps.insert(phase.to_owned(), steps);
        });
    }

    fn step(&self, phase: &str, step: u32) {
        self.with(|phases| {
            if phases.running.last().is_some_and(|last| last == phase) {
                self.bar.set_position(step.into());
            }
        });
    }

    fn end_phase(&self, phase: &str) {
        self.with(|phases| phases.running.retain(|other| other != phase));
    }

    fn end_part(&self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("4GiB"), Ok(4 << 30));
        assert_eq!(size("512 MiB"), Ok(512 << 20));
        assert_eq!(size("3GB"), Ok(3_000_000_000));
        assert_eq!(size("65536"), Ok(65_536));
        for text in ["", "GiB", "0", "-1GiB", "1.5GiB", "4 gigabytes", "99999999999999GiB"] {
            size(text).unwrap_err();
        }
    }
}
