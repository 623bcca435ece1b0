//! Compiling kernels for GPUs.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use cudarc::nvrtc::{result, sys};
use planish_files::Kind;

use crate::cache_folder;
use crate::cuda::source::Source;

/// The version of NVRTC.
pub(super) fn version() -> (i32, i32) {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is loaded; it writes two numbers.
    let _ = unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    (major, minor)
}

/// A kernel as machine code of an architecture such as `sm_90`: from the folder of caches, where an earlier process with the
/// same version of NVRTC left it.
///
/// # Errors
/// What the compiler said.
pub(super) fn compiled(source: &Source, architecture: &str) -> Result<Vec<u8>, String> {
    let text = source.text();
    let file = cached(&text, architecture);
    if let Some(cubin) = file.as_deref().and_then(read) {
        return Ok(cubin);
    }
    let Compiled { cubin, .. } = compile(source, architecture)?;
    if let Some(file) = &file {
        // The next process compiles again where nothing can be written.
        let _ = write(file, &cubin);
    }
    Ok(cubin)
}

/// What the compiler made, and what it said of registers and memory.
pub(super) struct Compiled {
    pub(super) cubin: Vec<u8>,
    pub(super) log: String,
}

/// Compiles a kernel.
///
/// # Errors
/// What the compiler said.
pub(super) fn compile(source: &Source, architecture: &str) -> Result<Compiled, String> {
    let named = |what: &str, log: &str| format!("the kernel {} {what} for {architecture}: {log}", source.kernel);
    let text = CString::new(source.text()).map_err(|e| e.to_string())?;
    let name = CString::new(format!("{}.cu", source.file.name)).map_err(|e| e.to_string())?;
    let program =
        result::create_program(&text, Some(&name)).map_err(|e| named("cannot be given to NVRTC", &e.to_string()))?;
    let options = [
        format!("--gpu-architecture={architecture}"),
        "-std=c++17".to_owned(),
        "--ptxas-options=-v".to_owned(),
        "-default-device".to_owned(),
    ];
    // SAFETY: the program was just made, and is destroyed below.
    let done = unsafe { result::compile_program(program, &options) };
    // SAFETY: as above.
    let log = unsafe { result::get_program_log(program) }.unwrap_or_default();
    let log = String::from_utf8_lossy(&log.iter().map(|c| c.cast_unsigned()).collect::<Vec<u8>>()).into_owned();
    let log = log.trim_matches(['\0', '\n']).to_owned();
    let cubin = done.map_err(|e| named("does not compile", &format!("{e}\n{log}"))).and_then(|()| {
        let mut bytes = 0;
        // SAFETY: as above; the size is that of what is written.
        unsafe {
            sys::nvrtcGetCUBINSize(program, &raw mut bytes)
                .result()
                .map_err(|e| named("gave no machine code", &e.to_string()))?;
            let mut cubin = vec![0u8; bytes];
            sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast())
                .result()
                .map_err(|e| named("gave no machine code", &e.to_string()))?;
            Ok(cubin)
        }
    });
    // SAFETY: nothing uses the program any more.
    let _ = unsafe { result::destroy_program(program) };
    Ok(Compiled { cubin: cubin?, log })
}

/// The file of a kernel in the folder of caches.
fn cached(text: &str, architecture: &str) -> Option<PathBuf> {
    let (major, minor) = version();
    let hash = blake3::hash(format!("{architecture} {major}.{minor}\n{text}").as_bytes());
    Some(cache_folder::of_user()?.join("cuda").join(format!("{}.cubin", &hash.to_hex()[..32])))
}

/// The code in a file that [`write`] wrote whole.
fn read(file: &Path) -> Option<Vec<u8>> {
    let mut bytes = planish_files::read(file, &Kind::CACHED).ok()?;
    let at = bytes.len().checked_sub(blake3::OUT_LEN)?;
    let digest = bytes.split_off(at);
    (blake3::hash(&bytes).as_bytes().as_slice() == digest).then_some(bytes)
}

/// Writes code with its digest, under another name first.
fn write(file: &PathBuf, cubin: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    let new = file.with_extension(format!("{}.{}", std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed)));
    fs::write(&new, [cubin, blake3::hash(cubin).as_bytes()].concat())?;
    fs::rename(new, file)
}
