//! Compiling kernels into the user's folder of caches before they are needed, on a machine that need not have a GPU.

use planish_ir::{Bindings, DType, Graph};
use rayon::prelude::*;

use super::catalog::kernels_of;
use super::source::Source;
use super::{CompileError, best, check, gpu};

/// Compiles the kernels of runs of a graph for an architecture such as `sm_90`: fused and unfused, with padding and without.
/// Returns how many there are.
///
/// # Errors
/// When there is no NVRTC, a kernel does not compile, or the graph has an operator without one.
pub fn precompile_run(graph: &Graph, bindings: &Bindings, architecture: &str) -> Result<usize, CompileError> {
    let kernels = kernels_of(graph, bindings, architecture).map_err(CompileError::Kernel)?;
    compile(kernels, architecture)
}

/// Compiles all kernels that [`check_kernels`](super::check_kernels) runs. Returns how many there are.
///
/// # Errors
/// When there is no NVRTC, or a kernel does not compile.
pub fn precompile_check(architecture: &str) -> Result<usize, CompileError> {
    let mut all = Vec::new();
    for (graph, bindings) in check::graphs().map_err(CompileError::Kernel)? {
        all.extend(kernels_of(&graph, &bindings, architecture).map_err(CompileError::Kernel)?);
    }
    all.extend([DType::F32, DType::F16, DType::Bf16].into_iter().filter_map(best::kernels).flatten());
    compile(all, architecture)
}

fn compile(mut kernels: Vec<Source>, architecture: &str) -> Result<usize, CompileError> {
    gpu::nvrtc_alone()?;
    gpu::check_architecture(architecture).map_err(CompileError::Kernel)?;
    kernels.sort_by_cached_key(Source::text);
    kernels.dedup_by_key(|source| source.text());
    let compiled = kernels.par_iter().map(|source| gpu::compile_kept(source, architecture));
    compiled.collect::<Result<(), String>>().map_err(CompileError::Kernel)?;
    Ok(kernels.len())
}
