//! Compiling kernels as C++.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs};

use libloading::Library;

use crate::cache_folder;
use crate::cuda::source::Source;

/// The headers that emulate CUDA.
const HEADERS: [(&str, &str); 3] =
    [("host.h", include_str!("host.h")), ("fibers.h", include_str!("fibers.h")), ("races.h", include_str!("races.h"))];

/// The options of the compiler.
const OPTIONS: [&str; 4] = ["-std=c++17", "-O2", "-fPIC", "-DPLANISH_HOST"];

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
        let name = format!("{}-{}", source.kernel, self.key(&text));
        let path = self.folder.join(format!("{name}.so"));
        if !path.exists() {
            self.compile(&name, &text, &path)?;
        }
        // SAFETY: the library is made of the kernels of this program; no constructor of it does anything.
        let library = unsafe { Library::new(&path) }.map_err(|e| format!("{}: {e}", path.display()))?;
        Ok((library, path))
    }

    /// What tells the result of compiling a text from that of others: the text, the headers, the compiler and its options.
    fn key(&self, text: &str) -> String {
        let mut hash = blake3::Hasher::new();
        let headers = HEADERS.iter().map(|(_, text)| *text);
        for part in headers.chain(OPTIONS).chain([text, self.version.as_str()]).chain(self.flags()) {
            hash.update(part.as_bytes()).update(&[0]);
        }
        hash.finalize().to_hex()[..24].to_owned()
    }

    /// A folder that no other process or thread has.
    fn own_folder(&self, name: &str) -> Result<PathBuf, String> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.join(format!("{name}.{}.{number}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(folder)
    }

    /// Runs the compiler in a folder.
    fn run<'a>(&self, folder: &Path, arguments: impl IntoIterator<Item = &'a str>) -> Result<Output, String> {
        let output = Command::new(&self.program).args(arguments).current_dir(folder).output();
        output.map_err(|e| format!("{}: {e}", folder.display()))
    }

    /// The folder of the headers, with the precompiled form of the first: reading them takes a fifth of the time of a kernel.
    fn headers(&self) -> Result<PathBuf, String> {
        let name = format!("headers-{}", self.key(""));
        let ready = self.folder.join(&name);
        if ready.exists() {
            return Ok(ready);
        }
        let folder = self.own_folder(&name)?;
        let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
        for (name, text) in HEADERS {
            fs::write(folder.join(name), text).map_err(failed)?;
        }
        let [(header, _), ..] = HEADERS;
        let precompiled = format!("{header}.gch");
        let output = self.run(
            &folder,
            OPTIONS.into_iter().chain(self.flags()).chain(["-x", "c++-header", header, "-o", &precompiled]),
        )?;
        // Another process may have been faster: one of the two stays.
        let _ = fs::rename(&folder, &ready);
        let _ = fs::remove_dir_all(&folder);
        match ready.join(precompiled).exists() {
            true => Ok(ready),
            false => Err(format!("the headers of kernels do not compile:\n{}", first_lines(&output.stderr))),
        }
    }

    fn compile(&self, name: &str, text: &str, to: &PathBuf) -> Result<(), String> {
        let headers = self.headers()?;
        let headers = headers.to_str().ok_or_else(|| format!("{} is not UTF-8", headers.display()))?;
        // The last rename of several that compile the same at the same time stays.
        let folder = self.own_folder(name)?;
        let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
        fs::write(folder.join("kernel.cpp"), text).map_err(failed)?;
        let files = ["-I", headers, "-include", HEADERS[0].0, "-c", "kernel.cpp", "-o", "kernel.o"];
        let mut output = self.run(&folder, OPTIONS.into_iter().chain(files).chain(self.flags()))?;
        if output.status.success() {
            // ThreadSanitizer's library is left out: the kernel has what its object calls.
            let flags = self.flags.iter().map(String::as_str);
            output = self.run(&folder, ["-shared", "kernel.o", "-o", "kernel.so"].into_iter().chain(flags))?;
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
