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
const HEADERS: [(&str, &str); 3] =
    [("host.h", include_str!("host.h")), ("fibers.h", include_str!("fibers.h")), ("races.h", include_str!("races.h"))];

/// The environment variable with more options for the compiler, e.g. `-fsanitize=address`.
pub(crate) const FLAGS: &str = "PLANISH_EMULATOR_FLAGS";

/// The environment variable that turns the search for races on: `1`.
pub(crate) const RACES: &str = "PLANISH_EMULATOR_RACES";

/// What the search for races is compiled with: the compiler tells of each access, and `races.h` listens.
const RACE_FLAGS: [&str; 3] = ["-fsanitize=thread", "-g", "-DPLANISH_RACES"];

/// A C++ compiler, and where what it makes is kept.
pub(crate) struct Compiler {
    program: OsString,
    pub(crate) version: String,
    flags: Vec<String>,
    /// Whether launches search for races in shared memory.
    pub(super) races: bool,
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
    let races = env::var_os(RACES).is_some_and(|value| value == "1");
    Ok(Compiler { program, version, flags, races, folder })
}

impl Compiler {
    /// The same with the search for races.
    #[cfg(test)]
    pub(crate) fn with_races(self) -> Self {
        Self { races: true, ..self }
    }

    /// All options.
    fn flags(&self) -> impl Iterator<Item = &str> {
        let races = if self.races { &RACE_FLAGS[..] } else { &[] };
        self.flags.iter().map(String::as_str).chain(races.iter().copied())
    }

    /// The library of a kernel and its file, from the folder of an earlier process where it is there.
    pub(super) fn library(&self, source: &Source) -> Result<(Library, PathBuf), String> {
        let text = source.text();
        let mut hash = blake3::Hasher::new();
        for part in HEADERS.iter().map(|(_, text)| *text).chain([text.as_str(), self.version.as_str()]) {
            hash.update(part.as_bytes()).update(&[0]);
        }
        for flag in self.flags() {
            hash.update(flag.as_bytes()).update(&[0]);
        }
        let name = format!("{}-{}", source.kernel, &hash.finalize().to_hex()[..24]);
        let path = self.folder.join(format!("{name}.so"));
        if !path.exists() {
            self.compile(&name, &text, &path)?;
        }
        // SAFETY: the library is made of the kernels of this program; no constructor of it does anything.
        let library = unsafe { Library::new(&path) }.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok((library, path))
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
        let run = |arguments: &[&str], flags: &mut dyn Iterator<Item = &str>| {
            let mut command = Command::new(&self.program);
            command.args(arguments).args(flags).current_dir(&folder).output().map_err(failed)
        };
        let compile = ["-std=c++17", "-O2", "-fPIC", "-DPLANISH_HOST", "-I.", "-c", "kernel.cpp", "-o", "kernel.o"];
        let mut output = run(&compile, &mut self.flags())?;
        if output.status.success() {
            // ThreadSanitizer's library is left out: the kernel has what its object calls.
            let mut flags = self.flags.iter().map(String::as_str);
            output = run(&["-shared", "kernel.o", "-o", "kernel.so"], &mut flags)?;
        }
        let made = fs::rename(folder.join("kernel.so"), to);
        fs::remove_dir_all(&folder).map_err(failed)?;
        made.map_err(|_| format!("the kernel {name} does not compile:\n{}", first_lines(&output.stderr)))
    }
}

/// The first lines of what a compiler said.
fn first_lines(output: &[u8]) -> String {
    String::from_utf8_lossy(output).lines().take(8).collect::<Vec<_>>().join("\n")
}
