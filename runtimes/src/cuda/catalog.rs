//! The kernels of transformers, compiled without a GPU: what they need of registers and shared memory.

use std::fmt;

use planish_ir::{Bindings, DType, Graph, text};
use rayon::prelude::*;

use super::packing::{PackedSizes, Packing};
use super::program::{Caches, Program, Style, Target};
use super::source::{self, Source};
use super::{best, gpu, plan};
use crate::Unavailable;

/// What the compiler says of a kernel for an architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelReport {
    /// The name of its function.
    pub kernel: &'static str,
    /// The macros that it is specialised by.
    pub macros: String,
    /// The architecture, e.g. `sm_90`.
    pub architecture: String,
    /// Registers of a thread.
    pub registers: usize,
    /// Bytes of static shared memory of a block.
    pub shared: usize,
    /// Bytes that a thread stores in memory, and loads from there, because it has no register for them.
    pub spills: usize,
    /// Bytes of a thread's stack, where arrays are that are indexed by what only a run knows.
    pub stack: usize,
    /// Whether a model spends its time in it: such a kernel must not spill.
    pub hot: bool,
}

impl fmt::Display for KernelReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) for {}", self.kernel, self.macros, self.architecture)
    }
}

/// A kernel did not compile, or there is no compiler.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// There is no NVRTC.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// What the compiler said.
    #[error("{0}")]
    Kernel(String),
}

/// Compiles all kernels that layers of BERT, GPT-2, Llama and T5 and layers of codes use, in all floating-point types, fused and unfused, for
/// architectures such as `sm_90`.
///
/// # Errors
/// When there is no NVRTC, or a kernel does not compile.
pub fn compile_kernels(architectures: &[&str]) -> Result<Vec<KernelReport>, CompileError> {
    gpu::nvrtc_alone()?;
    let mut pairs = Vec::new();
    for architecture in architectures {
        let sources = sources(architecture).map_err(CompileError::Kernel)?;
        pairs.extend(sources.into_iter().map(|source| (source, *architecture)));
    }
    let reports: Result<Vec<_>, String> =
        pairs.into_par_iter().map(|(source, architecture)| report(&source, architecture)).collect();
    reports.map_err(CompileError::Kernel)
}

fn report(source: &Source, architecture: &str) -> Result<KernelReport, String> {
    let log = gpu::compile_log(source, architecture)?;
    // A file may have several kernels, of which each has a part of the log.
    let own = format!("Compiling entry function '{}'", source.function());
    let log =
        log.split_once(&own).map_or("", |(_, rest)| rest.split("Compiling entry function").next().unwrap_or(rest));
    let number = |before: &str| {
        let at = log.find(before)?;
        log[..at].rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let stated = |what: &str| number(what).ok_or_else(|| format!("{} says nothing of `{what}`: {log}", source.kernel));
    let macros: Vec<String> = source.macros.iter().map(|(name, value)| format!("{name}={value}")).collect();
    Ok(KernelReport {
        kernel: source.kernel,
        macros: macros.join(" "),
        architecture: architecture.to_owned(),
        registers: stated(" registers")?,
        shared: number(" bytes smem").unwrap_or(0),
        spills: stated(" bytes spill stores")? + stated(" bytes spill loads")?,
        stack: stated(" bytes stack frame")?,
        hot: source::is_hot(source),
    })
}

/// The kernels of all programs of [`GRAPHS`] for an architecture, each once.
fn sources(architecture: &str) -> Result<Vec<Source>, String> {
    let mut all = Vec::new();
    for (name, statements, sizes) in GRAPHS {
        for dtype in ["f32", "f16", "bf16"] {
            let statements = statements.replace("FLOAT", dtype);
            let graph = text::parse(&format!("graph \"{name}\" {{\n{statements}\n}}"), &text::no_files);
            let mut graph = graph.map_err(|e| format!("{name}: {e}"))?;
            planish_onnx::interface::state(&mut graph);
            for sizes in *sizes {
                let symbol = |name: &str| planish_ir::Dim::symbol(name).as_symbol().cloned();
                let bindings: Bindings = sizes.iter().filter_map(|(name, size)| Some((symbol(name)?, *size))).collect();
                all.extend(kernels_of(&graph, &bindings, architecture).map_err(|e| format!("{name}: {e}"))?);
            }
        }
    }
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        all.extend(best::kernels(dtype).into_iter().flatten());
    }
    all.push(Source::new(source::SPIN, "spin"));
    all.sort_by_key(Source::text);
    all.dedup();
    Ok(all)
}

/// The kernels of runs of a graph on GPUs of an architecture: fused and unfused, and without the padding of a batch in which every other row has half of its
/// tokens.
///
/// # Errors
/// When the graph has an operator without a kernel, or a size is not known.
pub(super) fn kernels_of(graph: &Graph, bindings: &Bindings, architecture: &str) -> Result<Vec<Source>, String> {
    let mut all = Vec::new();
    for style in [Style::Fused, Style::Unfused] {
        let target = Target::of_architecture(style, architecture);
        all.extend(Program::new(graph, bindings, target, &Caches::default())?.kernels);
    }
    let fused = Target::of_architecture(Style::Fused, architecture);
    if let Some(Ok(family)) = plan::steps(graph, bindings, fused) {
        all.extend(family.program.kernels);
    }
    if let Ok(packing) = Packing::of(graph, &fused) {
        let mask = graph.inputs().get(packing.mask()).and_then(|mask| graph.ty(*mask).shape.evaluate(bindings));
        if let Some(&[batch, sequence]) = mask.as_deref() {
            let lengths: Vec<usize> = (0..batch).map(|row| sequence / (1 + row % 2)).collect();
            if let Some(sizes) = PackedSizes::of(&lengths, sequence) {
                all.extend(Program::packed(graph, bindings, fused, &packing, sizes)?.kernels);
            }
        }
    }
    Ok(all)
}

/// Sizes of the symbols of a graph.
type Sizes = &'static [(&'static str, i64)];

/// Layers with the sizes of real models: a name, the statements, and sizes of the symbols.
const GRAPHS: &[(&str, &str, &[Sizes])] = &[
    (
        "bert",
        "input %ids: i64[b, s]
         input %types: i64[b, s]
         input %attention_mask: i64[b, s]
         input %words: FLOAT[30528, 768]
         input %positions: FLOAT[512, 768]
         input %segments: FLOAT[2, 768]
         input %w: FLOAT[768]
         input %qkv: FLOAT[2304, 768]
         input %qkv_bias: FLOAT[2304]
         input %up: FLOAT[3072, 768]
         input %up_bias: FLOAT[3072]
         input %down: FLOAT[768, 3072]
         %at = iota() {dtype = i64, length = s} : i64[s]
         %mask = cast(%attention_mask) {to = bool} : bool[b, s]
         %x, %sum = embedding_norm([%words, %positions, %segments], [%ids, %at, %types], %w, norm_bias: %w) {norm = layer, eps = 1e-12} : FLOAT[b, s, 768], FLOAT[b, s, 768]
         %packed = linear(%x, %qkv, bias: %qkv_bias) : FLOAT[b, s, 2304]
         %q, %k, %v = split(%packed) {axis = 2, sizes = [768, 768, 768]} : FLOAT[b, s, 768], FLOAT[b, s, 768], FLOAT[b, s, 768]
         %a = attention(%q, %k, %v, mask: %mask) {heads = 12, scale = 0.125} : FLOAT[b, s, 768]
         %n, %r = add_norm(%a, %x, %w, bias: %w, norm_bias: %w) {norm = layer, eps = 1e-12} : FLOAT[b, s, 768], FLOAT[b, s, 768]
         %h = fused_linear(%n, %up, bias: %up_bias) {activation = gelu_erf} : FLOAT[b, s, 3072]
         %d = linear(%h, %down) : FLOAT[b, s, 768]
         %y, %z = add_norm(%d, %n, %w, bias: %w, norm_bias: %w) {norm = layer, eps = 1e-12} : FLOAT[b, s, 768], FLOAT[b, s, 768]
         %token = slice(%y) {axis = 1, start = 0, end = 1} : FLOAT[b, 1, 768]
         output y = %y
         output token = %token",
        &[&[("b", 8), ("s", 512)], &[("b", 2), ("s", 64)]],
    ),
    (
        "gpt2",
        "input %x: FLOAT[b, s, 768]
         input %mask: bool[b, past + s]
         input %past_key: FLOAT[b, 12, past, 64]
         input %past_value: FLOAT[b, 12, past, 64]
         input %w: FLOAT[768]
         input %qkv: FLOAT[768, 2304]
         input %qkv_bias: FLOAT[2304]
         input %up: FLOAT[768, 3072]
         input %up_bias: FLOAT[3072]
         %packed = linear(%x, %qkv, bias: %qkv_bias) {transposed = true} : FLOAT[b, s, 2304]
         %q, %k, %v = split(%packed) {axis = 2, sizes = [768, 768, 768]} : FLOAT[b, s, 768], FLOAT[b, s, 768], FLOAT[b, s, 768]
         %a, %key, %value = attention(%q, %k, %v, mask: %mask, past_key: %past_key, past_value: %past_value) {heads = 12, scale = 0.125, causal = true, present = true} : FLOAT[b, s, 768], FLOAT[b, 12, past + s, 64], FLOAT[b, 12, past + s, 64]
         %n, %r = add_norm(%a, %x, %w, bias: %w, norm_bias: %w) {norm = layer, eps = 1e-5} : FLOAT[b, s, 768], FLOAT[b, s, 768]
         %h = fused_linear(%n, %up, bias: %up_bias) {transposed = true, activation = gelu_tanh} : FLOAT[b, s, 3072]
         output r = %r
         output h = %h
         output key = %key
         output value = %value",
        &[&[("b", 1), ("s", 512), ("past", 0)], &[("b", 1), ("s", 1), ("past", 511)], &[("b", 4), ("s", 1), ("past", 511)], &[("b", 8), ("s", 1024), ("past", 0)]],
    ),
    (
        "llama",
        "input %x: FLOAT[b, s, 4096]
         input %mask: bool[b, past + s]
         input %past_key: FLOAT[b, 8, past, 128]
         input %past_value: FLOAT[b, 8, past, 128]
         input %cos: FLOAT[b, s, 64]
         input %sin: FLOAT[b, s, 64]
         input %w: FLOAT[4096]
         input %qkv: FLOAT[6144, 4096]
         input %out: FLOAT[4096, 4096]
         input %gate_up: FLOAT[28672, 4096]
         %packed = linear(%x, %qkv) : FLOAT[b, s, 6144]
         %q, %k, %v = split(%packed) {axis = 2, sizes = [4096, 1024, 1024]} : FLOAT[b, s, 4096], FLOAT[b, s, 1024], FLOAT[b, s, 1024]
         %t, %key, %value = rotary_append(%q, %k, %v, %cos, %sin, past_key: %past_key, past_value: %past_value) {heads = 32, kv_heads = 8} : FLOAT[b, s, 4096], FLOAT[b, 8, past + s, 128], FLOAT[b, 8, past + s, 128]
         %a = attention(%t, %key, %value, mask: %mask) {heads = 32, kv_heads = 8, scale = 0.0883883476483184, causal = true} : FLOAT[b, s, 4096]
         %p = linear(%a, %out) : FLOAT[b, s, 4096]
         %n, %r = add_norm(%p, %x, %w) {norm = rms, eps = 1e-5} : FLOAT[b, s, 4096], FLOAT[b, s, 4096]
         %both = linear(%n, %gate_up) : FLOAT[b, s, 28672]
         %gate, %up = split(%both) {axis = 2, sizes = [14336, 14336]} : FLOAT[b, s, 14336], FLOAT[b, s, 14336]
         %h = gated(%gate, %up) {activation = silu} : FLOAT[b, s, 14336]
         output r = %r
         output h = %h
         output key = %key
         output value = %value",
        &[&[("b", 1), ("s", 2048), ("past", 0)], &[("b", 1), ("s", 1), ("past", 2047)], &[("b", 4), ("s", 1), ("past", 2047)]],
    ),
    (
        "t5",
        "input %x: FLOAT[b, s, 512]
         input %q: FLOAT[b, s, 512]
         input %attention_mask: bool[b, s]
         input %bias: FLOAT[1, 8, s, s]
         input %table: FLOAT[32128, 512]
         input %w: FLOAT[512]
         input %k: i64[b, s]
         input %t: FLOAT[b, t, 512]
         %p = cumsum(%k) {axis = 1} : i64[b, s]
         %e = embedding(%table, %p) : FLOAT[b, s, 512]
         %n = rms_norm(%x, %w) {eps = 1e-6} : FLOAT[b, s, 512]
         %a = attention(%q, %n, %n, mask: %attention_mask, bias: %bias) {heads = 8, scale = 1} : FLOAT[b, s, 512]
         %s = softmax(%a) : FLOAT[b, s, 512]
         %m = reduce_mean(%t) {axes = [1], keep = false} : FLOAT[b, 512]
         output s = %s
         output e = %e
         output m = %m",
        &[&[("b", 8), ("s", 512), ("t", 512)], &[("b", 1), ("s", 64), ("t", 64)]],
    ),
    (
        "causal encoder",
        "input %attention_mask: bool[b, s]
         input %q: FLOAT[b, s, 1024]
         input %k: FLOAT[b, s, 256]
         input %v: FLOAT[b, s, 256]
         %a = attention(%q, %k, %v, mask: %attention_mask) {heads = 8, kv_heads = 2, scale = 0.0883883476483184, causal = true} : FLOAT[b, s, 1024]
         output a = %a",
        &[&[("b", 8), ("s", 512)]],
    ),
    (
        "layers of codes",
        "input %x: FLOAT[b, s, 768]
         input %qkv: i8[2304, 768]
         input %qkv_scales: f32[2304]
         input %qkv_bias: FLOAT[2304]
         input %up: i8[3072, 768]
         input %up_scales: f32[3072]
         input %up_bias: FLOAT[3072]
         input %down: i8[768, 3072]
         input %down_scales: f32[768]
         input %down_bias: FLOAT[768]
         input %few: i8[768, 100]
         %c = quantize(%x) {scale = 0.02} : i8[b, s, 768]
         %packed = quantized_linear(%c, %qkv, %qkv_scales, bias: %qkv_bias) {to = FLOAT, activation = none} : FLOAT[b, s, 2304]
         %plain = quantized_linear(%c, %qkv, %qkv_scales) {to = FLOAT, activation = none} : FLOAT[b, s, 2304]
         %erf = quantized_linear(%c, %up, %up_scales, bias: %up_bias) {to = FLOAT, activation = gelu_erf} : FLOAT[b, s, 3072]
         %tanh = quantized_linear(%c, %up, %up_scales, bias: %up_bias) {to = FLOAT, activation = gelu_tanh} : FLOAT[b, s, 3072]
         %relu = quantized_linear(%c, %up, %up_scales) {to = FLOAT, activation = relu} : FLOAT[b, s, 3072]
         %silu = quantized_linear(%c, %up, %up_scales) {to = FLOAT, activation = silu} : FLOAT[b, s, 3072]
         %h = quantize(%erf) {scale = 0.03} : i8[b, s, 3072]
         %y = quantized_linear(%h, %down, %down_scales, bias: %down_bias, residual: %x) {to = FLOAT, activation = none} : FLOAT[b, s, 768]
         %z = quantized_linear(%h, %down, %down_scales, residual: %x) {to = FLOAT, activation = none} : FLOAT[b, s, 768]
         %part = slice(%x) {axis = 2, start = 0, end = 100} : FLOAT[b, s, 100]
         %f = quantize(%part) {scale = 0.02} : i8[b, s, 100]
         %sums = quantized_linear(%f, %few, %down_scales, bias: %down_bias) {to = FLOAT, activation = none} : FLOAT[b, s, 768]
         output sums = %sums
         output packed = %packed
         output plain = %plain
         output tanh = %tanh
         output relu = %relu
         output silu = %silu
         output y = %y
         output z = %z",
        &[&[("b", 8), ("s", 512)], &[("b", 8), ("s", 128)], &[("b", 1), ("s", 16)]],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_kernels_is_compiled() {
        let sources = sources("sm_90").unwrap();
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cuda/kernels");
        for name in planish_testing::names(&folder).iter().filter_map(|name| name.strip_suffix(".cu")) {
            assert!(source::FILES.iter().any(|file| file.name == name), "{name}.cu is not in the list of files");
        }
        for file in source::FILES {
            assert!(sources.iter().any(|source| source.file == *file), "no kernel of {}.cu is compiled", file.name);
        }
        assert!(sources.iter().any(source::is_hot));
        let has = |macros: &[(&str, &str)]| {
            let is = |source: &Source, name, value| {
                source.macros.iter().any(|(other, own)| *other == name && own.to_string() == value)
            };
            sources.iter().any(|source| macros.iter().all(|(name, value)| is(source, *name, *value)))
        };
        for dtype in ["float", "half_t", "bf16_t"] {
            for more in [("BIAS", "0"), ("BIAS", "1"), ("CAUSAL", "1")] {
                assert!(
                    has(&[("RAGGED", "1"), ("ELEMENT", dtype), more]),
                    "no packed attention of {dtype} has {more:?}"
                );
            }
        }
    }
}
