//! Compiling kernels as C++.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs};

use libloading::Library;

use crate::cache_folder;
use crate::cuda::source::Source;

/// The headers that emulate CUDA.
const HEADERS: [(&str, &str); 2] = [("host.h", include_str!("host.h")), ("fibers.h", include_str!("fibers.h"))];

/// The environment variable with more options for the compiler, e.g. `-fsanitize=address`.
pub(crate) const FLAGS: &str = "PLANISH_EMULATOR_FLAGS";

/// A C++ compiler, and where what it makes is kept.
pub(crate) struct Compiler {
    program: OsString,
    pub(crate) version: String,
    flags: Vec<String>,
    folder: PathBuf,
}

/// The C++ compiler of this machine: that of the variable CXX, else `c++`.
///
/// # Errors
/// When it does not run, or the user has no folder of caches.
pub(crate) fn compiler() -> Result<Compiler, String> {
    let program = env::var_os("CXX").filter(|program| !program.is_empty()).unwrap_or_else(|| "c++".into());
    let output = Command::new(&program).arg("--version").output();
    let output = output.map_err(|e| format!("the C++ compiler {} does not run: {e}", program.display()))?;
    let version = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned();
    let flags = env::var(FLAGS).unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    // Not a folder that others may write to: what is there is loaded.
    let folder =
        cache_folder::of_user().ok_or("there is no folder for compiled kernels: set HOME or XDG_CACHE_HOME")?;
    let folder = folder.join("emulator");
    Ok(Compiler { program, version, flags, folder })
}

impl Compiler {
    /// The library of a kernel, from the folder of an earlier process where it is there.
    pub(super) fn library(&self, source: &Source) -> Result<Library, String> {
        let text = source.text();
        let mut hash = blake3::Hasher::new();
        for part in HEADERS.iter().map(|(_, text)| *text).chain([text.as_str(), self.version.as_str()]) {
            hash.update(part.as_bytes()).update(&[0]);
        }
        for flag in &self.flags {
            hash.update(flag.as_bytes()).update(&[0]);
        }
        let name = format!("{}-{}", source.kernel, &hash.finalize().to_hex()[..24]);
        let path = self.folder.join(format!("{name}.so"));
        if !path.exists() {
            self.compile(&name, &text, &path)?;
        }
        // SAFETY: the library is made of the kernels of this program; it has no constructors.
        unsafe { Library::new(&path) }.map_err(|e| format!("{}: {e}", path.display()))
    }

    fn compile(&self, name: &str, text: &str, to: &PathBuf) -> Result<(), String> {
        // Processes and threads that compile the same at the same time have folders of their own; the last rename stays.
        static COMPILED: AtomicUsize = AtomicUsize::new(0);
        let number = COMPILED.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.join(format!("{name}.{}.{number}", std::process::id()));
        let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
        fs::create_dir_all(&folder).map_err(failed)?;
        for (name, text) in HEADERS.into_iter().chain([("kernel.cpp", text)]) {
            fs::write(folder.join(name), text).map_err(failed)?;
        }
        let output = Command::new(&self.program)
            .args(["-std=c++17", "-O2", "-shared", "-fPIC", "-DPLANISH_HOST", "-I."])
            .args(&self.flags)
            .args(["kernel.cpp", "-o", "kernel.so"])
            .current_dir(&folder)
            .output()
            .map_err(failed)?;
        let made = fs::rename(folder.join("kernel.so"), to);
        fs::remove_dir_all(&folder).map_err(failed)?;
        made.map_err(|_| format!("the kernel {name} does not compile:\n{}", first_lines(&output.stderr)))
    }
}

/// The first lines of what a compiler said.
fn first_lines(output: &[u8]) -> String {
    String::from_utf8_lossy(output).lines().take(8).collect::<Vec<_>>().join("\n")
}
