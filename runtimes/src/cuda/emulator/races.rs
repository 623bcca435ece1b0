//! The search for races in shared memory: what a launch of a kernel found (`races.h`).

use std::ffi::{CStr, c_char};
use std::path::PathBuf;
use std::process::Command;

use libloading::Library;

/// What returns the race of the last launch of the thread that asks; empty if there was none.
type Race = unsafe extern "C" fn() -> *const c_char;

/// The races of a module.
#[derive(Clone)]
pub(super) struct Races {
    race: Race,
    library: PathBuf,
}

impl Races {
    /// Of a library that was compiled with the search.
    pub(super) fn of(library: &Library, path: PathBuf) -> Result<Self, String> {
        // SAFETY: `races.h` gives the function this type.
        let race = unsafe { library.get::<Race>(b"planish_race\0") }.map_err(|e| e.to_string())?;
        Ok(Self { race: *race, library: path })
    }

    /// # Errors
    /// The race of the last launch of this thread.
    pub(super) fn check(&self) -> Result<(), String> {
        // SAFETY: the library is loaded as long as its kernel, and the text is one of C in memory of this thread.
        let race = unsafe { CStr::from_ptr((self.race)()) }.to_string_lossy().into_owned();
        if race.is_empty() { Ok(()) } else { Err(self.located(race)) }
    }

    /// The text with lines in place of `{+hex}`.
    fn located(&self, mut text: String) -> String {
        while let Some((before, (at, rest))) =
            text.split_once("{+").and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
        {
            text = format!("{before}{}{rest}", self.line(at));
        }
        text
    }

    /// The file and line of an instruction; its address where there is no `addr2line` (of binutils).
    fn line(&self, at: &str) -> String {
        let output = Command::new("addr2line").args(["-i", "-e"]).arg(&self.library).arg(format!("0x{at}")).output();
        let output = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        // The innermost function comes first: that of a header may be called from many lines of a kernel.
        let lines = output.lines().map(|line| line.split(" (").next().unwrap_or(line));
        let lines: Vec<&str> = lines.filter_map(|line| line.rsplit('/').next()).collect();
        let of_kernel = lines.iter().find(|line| line.contains(".cu:")).or(lines.first());
        of_kernel.map_or_else(|| format!("0x{at} of {}", self.library.display()), |line| (*line).to_owned())
    }
}
