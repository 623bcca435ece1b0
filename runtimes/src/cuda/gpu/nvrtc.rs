//! Compiling kernels for GPUs.

use std::ffi::{CString, c_char};
use std::fmt;

use cudarc::nvrtc::{result, sys};

use super::cached;
use crate::cuda::source::Source;

/// The version of NVRTC.
pub(super) fn version() -> (i32, i32) {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is loaded; it writes two numbers.
    let _ = unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    (major, minor)
}

/// What kernels are compiled for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Architecture {
    /// Machine code, for e.g. `sm_90`.
    Machine(String),
    /// PTX for e.g. `compute_90`, which the driver compiles for a GPU that NVRTC does not know.
    Virtual(String),
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(name) | Self::Virtual(name) => name.fmt(f),
        }
    }
}

impl Architecture {
    /// What NVRTC compiles for a GPU of a compute capability, e.g. 90.
    ///
    /// # Errors
    /// When it knows only newer GPUs.
    pub(super) fn of(capability: u32) -> Result<Self, String> {
        Self::among(capability, &known())
    }

    /// The same where NVRTC knows these; none where it does not say.
    fn among(capability: u32, known: &[u32]) -> Result<Self, String> {
        if known.is_empty() || known.contains(&capability) {
            return Ok(Self::Machine(format!("sm_{capability}")));
        }
        let newest = known.iter().filter(|known| **known < capability).max();
        let newest = newest.ok_or_else(|| format!("NVRTC compiles for no GPU as old as sm_{capability}"))?;
        Ok(Self::Virtual(format!("compute_{newest}")))
    }
}

/// Whether NVRTC compiles machine code for an architecture, e.g. `sm_90`.
///
/// # Errors
/// When it does not know it: which ones it knows.
pub(super) fn check(architecture: &str) -> Result<(), String> {
    let names: Vec<String> = known().iter().map(|one| format!("sm_{one}")).collect();
    match names.is_empty() || names.iter().any(|name| name == architecture) {
        true => Ok(()),
        false => {
            let (major, minor) = version();
            Err(format!("NVRTC {major}.{minor} does not compile for {architecture}; it knows {}", names.join(", ")))
        }
    }
}

/// The compute capabilities that NVRTC knows, without variants of an architecture.
fn known() -> Vec<u32> {
    let mut count = 0;
    // SAFETY: the library is loaded; it writes a number.
    let counted = unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut count) }.result();
    let mut known = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: there is room for as many as it has.
    let asked = counted.and_then(|()| unsafe { sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) }.result());
    match asked {
        Ok(()) => known.into_iter().filter_map(|one| u32::try_from(one).ok()).collect(),
        Err(_) => Vec::new(),
    }
}

/// A kernel for an architecture: from the folder of caches, where an earlier process with the same version of NVRTC left it.
///
/// # Errors
/// What the compiler said.
pub(super) fn compiled(source: &Source, architecture: &Architecture) -> Result<Vec<u8>, String> {
    let file = cached::file("", &key(source, architecture, version()), "cubin");
    if let Some(code) = file.as_deref().and_then(cached::read) {
        return Ok(code);
    }
    let Compiled { code, .. } = compile(source, architecture)?;
    if let Some(file) = &file {
        // The next process compiles again where nothing can be written.
        let _ = cached::write(file, &code);
    }
    Ok(code)
}

/// What determines the code: the options, the version of NVRTC and the source.
fn key(source: &Source, architecture: &Architecture, (major, minor): (i32, i32)) -> [String; 3] {
    [options(architecture).join(" "), format!("{major}.{minor}"), source.text()]
}

/// What the compiler made, and what it said of registers and memory.
pub(super) struct Compiled {
    /// Machine code, or PTX with a zero byte after it.
    pub(super) code: Vec<u8>,
    pub(super) log: String,
}

/// The options of the compiler.
fn options(architecture: &Architecture) -> [String; 4] {
    [
        format!("--gpu-architecture={architecture}"),
        "-std=c++17".to_owned(),
        "--ptxas-options=-v".to_owned(),
        "-default-device".to_owned(),
    ]
}

/// Compiles a kernel.
///
/// # Errors
/// What the compiler said.
pub(super) fn compile(source: &Source, architecture: &Architecture) -> Result<Compiled, String> {
    let named = |what: &str, log: &str| format!("the kernel {} {what} for {architecture}: {log}", source.kernel);
    let text = CString::new(source.text()).map_err(|e| e.to_string())?;
    let name = CString::new(format!("{}.cu", source.file.name)).map_err(|e| e.to_string())?;
    let program =
        result::create_program(&text, Some(&name)).map_err(|e| named("cannot be given to NVRTC", &e.to_string()))?;
    // SAFETY: the program was just made, and is destroyed below.
    let done = unsafe { result::compile_program(program, &options(architecture)) };
    // SAFETY: as above.
    let log = unsafe { result::get_program_log(program) }.unwrap_or_default();
    let log = String::from_utf8_lossy(&log.iter().map(|c| c.cast_unsigned()).collect::<Vec<u8>>()).into_owned();
    let log = log.trim_matches(['\0', '\n']).to_owned();
    let code = done
        .map_err(|e| named("does not compile", &format!("{e}\n{log}")))
        .and_then(|()| code(program, architecture).map_err(|e| named("gave no code", &e.to_string())));
    // SAFETY: nothing uses the program any more.
    let _ = unsafe { result::destroy_program(program) };
    Ok(Compiled { code: code?, log })
}

/// The code of a program that is compiled.
fn code(program: sys::nvrtcProgram, architecture: &Architecture) -> Result<Vec<u8>, result::NvrtcError> {
    type Size = unsafe fn(sys::nvrtcProgram, *mut usize) -> sys::nvrtcResult;
    type Code = unsafe fn(sys::nvrtcProgram, *mut c_char) -> sys::nvrtcResult;
    let (size, write): (Size, Code) = match architecture {
        Architecture::Machine(_) => (sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN),
        Architecture::Virtual(_) => (sys::nvrtcGetPTXSize, sys::nvrtcGetPTX),
    };
    let mut bytes = 0;
    // SAFETY: the program is there; the size is that of what is written.
    unsafe {
        size(program, &raw mut bytes).result()?;
        let mut code = vec![0u8; bytes];
        write(program, code.as_mut_ptr().cast()).result()?;
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::Architecture::{self, Machine, Virtual};
    use super::{key, options};
    use crate::cuda::source::{SPIN, Source};

    #[test]
    fn code_is_kept_by_all_that_determines_it() {
        let (source, other) = (Source::new(SPIN, "spin"), Source::new(SPIN, "spin").with("MACRO", 1));
        let (machine, ptx) = (Machine("sm_90".to_owned()), Virtual("compute_90".to_owned()));
        let of = key(&source, &machine, (13, 0));
        assert!(options(&machine).iter().all(|option| of[0].contains(option)));
        for other in [key(&other, &machine, (13, 0)), key(&source, &ptx, (13, 0)), key(&source, &machine, (13, 1))] {
            assert_ne!(of, other);
        }
    }

    #[test]
    fn a_gpu_that_nvrtc_does_not_know_gets_ptx_of_the_newest_before_it() {
        let known = [75, 80, 86, 90];
        assert_eq!(Architecture::among(86, &known), Ok(Machine("sm_86".to_owned())));
        assert_eq!(Architecture::among(89, &known), Ok(Virtual("compute_86".to_owned())));
        assert_eq!(Architecture::among(120, &known), Ok(Virtual("compute_90".to_owned())));
        assert!(Architecture::among(120, &[]).is_ok_and(|one| one == Machine("sm_120".to_owned())));
        assert!(Architecture::among(80, &[90, 100]).is_err_and(|reason| reason.contains("sm_80")));
    }
}
