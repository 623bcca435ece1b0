//! `planish bench report`, and the files that `planish bench` writes in the same way.

use std::path::{Path, PathBuf};

use anyhow::Result;
use planish_artifact::files;
use planish_measure::bench::{Document, csv, html};

use super::{Usage, overwrites};

/// Write saved runs of bench as a page of HTML or as CSV
///
/// The runs of several files are on one page, as further contestants. The first contestant of the first file is the one
/// that the speed of others is relative to.
#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The runs, files of bench --json
    #[arg(value_name = "A.json", required = true)]
    runs: Vec<PathBuf>,
    #[command(flatten)]
    reports: Reports,
}

/// The files that figures are written to, besides JSON.
#[derive(clap::Args)]
pub(super) struct Reports {
    /// Write a report: one page of HTML with plots and tables, which needs no other files
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the figures as CSV, one row for each cell
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

impl Reports {
    /// The files with their options.
    pub(super) fn outputs(&self) -> [(&'static str, Option<&Path>); 2] {
        [("--html", self.html.as_deref()), ("--csv", self.csv.as_deref())]
    }

    /// Refuses files that cannot be written, before work that would be in vain.
    pub(super) fn check(&self) -> Result<()> {
        [&self.html, &self.csv].into_iter().flatten().try_for_each(|path| files::check_writable(path))
    }

    /// Writes the files that were asked for; each document has a name.
    pub(super) fn write(&self, documents: &[(&str, &Document)]) -> Result<()> {
        if let Some(path) = &self.html {
            files::write(path, html(documents)?.as_bytes())?;
        }
        if let Some(path) = &self.csv {
            files::write(path, &csv(documents)?)?;
        }
        Ok(())
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    if arguments.reports.html.is_none() && arguments.reports.csv.is_none() {
        return Err(Usage("nothing is to be written: give --html FILE, --csv FILE or both".to_owned()).into());
    }
    overwrites::check(arguments.reports.outputs(), [], arguments.runs.iter().map(PathBuf::as_path))?;
    arguments.reports.check()?;
    let documents = arguments.runs.iter().map(|path| Document::read(path)).collect::<Result<Vec<Document>>>()?;
    let names = names(&arguments.runs);
    let named: Vec<(&str, &Document)> = names.iter().map(String::as_str).zip(&documents).collect();
    arguments.reports.write(&named)
}

/// The names of runs: those of their files without the ending, or the paths where several files have one name. A file that is
/// given again has a number.
fn names(runs: &[PathBuf]) -> Vec<String> {
    let stem = |path: &Path| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let name = |path: &PathBuf| {
        let alone = runs.iter().filter(|other| stem(other) == stem(path)).count() == 1;
        if alone { stem(path) } else { path.display().to_string() }
    };
    let all: Vec<String> = runs.iter().map(name).collect();
    let numbered = |(at, name): (usize, &String)| match all[..at].iter().filter(|other| *other == name).count() {
        0 => name.clone(),
        before => format!("{name} ({})", before + 1),
    };
    all.iter().enumerate().map(numbered).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_one_name_are_told_apart() {
        let named = |paths: &[&str]| names(&paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(named(&["a/one.json", "two.json"]), ["one", "two"]);
        assert_eq!(named(&["a/run.json", "b/run.json", "two.json"]), ["a/run.json", "b/run.json", "two"]);
        assert_eq!(named(&["run.json", "run.json"]), ["run.json", "run.json (2)"]);
    }
}
