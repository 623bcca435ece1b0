//! Where ONNX Runtime's shared library is looked for.

use std::fmt;
use std::path::{Path, PathBuf};

/// The environment variable that names the library's file or folder.
pub const LIBRARY_VARIABLE: &str = "PLANISH_ORT_LIB";

/// Wheels and releases call the file this, with or without a version behind it.
const FILE_NAME: &str = "libonnxruntime.so";

/// What decides where to look.
pub(crate) struct Search {
    /// From `--ort-lib`.
    pub(crate) option: Option<PathBuf>,
    /// From the environment.
    pub(crate) variable: Option<PathBuf>,
    /// The program's file.
    pub(crate) program: Option<PathBuf>,
    /// The current folder.
    pub(crate) folder: Option<PathBuf>,
}

/// By which rule a candidate was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Option,
    Variable,
    BesideProgram,
    Deps,
    System,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Option => f.write_str("--ort-lib"),
            Rule::Variable => f.write_str(LIBRARY_VARIABLE),
            Rule::BesideProgram => f.write_str("beside the program"),
            Rule::Deps => f.write_str(".deps"),
            Rule::System => f.write_str("the system's loader"),
        }
    }
}

/// A place to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) rule: Rule,
    /// A file, a folder, or for the system's loader a bare file name.
    pub(crate) path: PathBuf,
}

impl Search {
    /// As this process was started.
    pub(crate) fn of_process(option: Option<PathBuf>) -> Self {
        Self {
            option,
            variable: std::env::var_os(LIBRARY_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from),
            program: std::env::current_exe().ok(),
            folder: std::env::current_dir().ok(),
        }
    }

    /// The places in order. A library that was named is the only place: a user who names one
    /// does not want another.
    pub(crate) fn places(&self) -> Vec<Place> {
        if let Some(path) = &self.option {
            return vec![Place { rule: Rule::Option, path: path.clone() }];
        }
        if let Some(path) = &self.variable {
            return vec![Place { rule: Rule::Variable, path: path.clone() }];
        }
        let program = self.program.as_deref().and_then(Path::parent);
        let mut places = Vec::new();
        places.extend(program.map(|folder| Place { rule: Rule::BesideProgram, path: folder.to_owned() }));
        for start in [self.folder.as_deref(), program].into_iter().flatten() {
            for folder in start.ancestors().map(|folder| folder.join(".deps")).filter(|deps| deps.is_dir()) {
                for path in [folder.join("onnxruntime"), folder] {
                    let place = Place { rule: Rule::Deps, path };
                    if !places.contains(&place) {
                        places.push(place);
                    }
                }
            }
        }
        // The loader knows LD_LIBRARY_PATH, its cache and the usual folders.
        places.extend(
            ["libonnxruntime.so", "libonnxruntime.so.1"].map(|name| Place { rule: Rule::System, path: name.into() }),
        );
        places
    }
}

impl Place {
    /// The library's files here, newest version first.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>, String> {
        if self.rule == Rule::System {
            return Ok(vec![self.path.clone()]);
        }
        if self.path.is_file() {
            // A path without a slash would be searched for by the loader.
            return Ok(vec![std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone())]);
        }
        let entries = std::fs::read_dir(&self.path).map_err(|e| e.to_string())?;
        let mut found: Vec<(Vec<u32>, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| Some((version_of(entry.file_name().to_str()?)?, entry.path())))
            .collect();
        if found.is_empty() {
            return Err(format!("no {FILE_NAME}"));
        }
        found.sort();
        Ok(found.into_iter().rev().map(|(_, path)| std::path::absolute(&path).unwrap_or(path)).collect())
    }
}

/// The version in the name of a library's file, empty for none; `None` for other files.
fn version_of(name: &str) -> Option<Vec<u32>> {
    match name.strip_prefix(FILE_NAME)? {
        "" => Some(Vec::new()),
        rest => rest.strip_prefix('.')?.split('.').map(|part| part.parse().ok()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(search: &Search) -> Vec<Rule> {
        search.places().iter().map(|place| place.rule).collect()
    }

    #[test]
    fn a_named_library_is_the_only_place() {
        let mut search = Search {
            option: Some("a.so".into()),
            variable: Some("b.so".into()),
            program: Some("/nowhere/bin/planish".into()),
            folder: None,
        };
        assert_eq!(search.places(), [Place { rule: Rule::Option, path: "a.so".into() }]);
        search.option = None;
        assert_eq!(search.places(), [Place { rule: Rule::Variable, path: "b.so".into() }]);
        search.variable = None;
        assert_eq!(rules(&search), [Rule::BesideProgram, Rule::System, Rule::System]);
    }

    #[test]
    fn deps_are_found_above_the_current_folder_and_the_program() {
        let root = tempfile::tempdir().unwrap();
        let here = root.path().join("here/below");
        let bin = root.path().join("there/target/debug");
        for folder in [&here, &bin, &root.path().join("here/.deps/onnxruntime"), &root.path().join("there/.deps")] {
            std::fs::create_dir_all(folder).unwrap();
        }
        let search =
            Search { option: None, variable: None, program: Some(bin.join("planish")), folder: Some(here.clone()) };
        let deps: Vec<PathBuf> = search.places().into_iter().filter(|p| p.rule == Rule::Deps).map(|p| p.path).collect();
        let expected = ["here/.deps/onnxruntime", "here/.deps", "there/.deps/onnxruntime", "there/.deps"];
        assert_eq!(deps, expected.map(|path| root.path().join(path)));
    }

    #[test]
    fn the_newest_version_of_a_folder_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place { rule: Rule::Deps, path: folder.path().to_owned() };
        assert_eq!(place.files().unwrap_err(), "no libonnxruntime.so");
        let names =
            ["libonnxruntime.so.1.9.0", "libonnxruntime.so.1.31.1", "libonnxruntime.so", "libonnxruntime.so.txt"];
        for name in names {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found: Vec<String> =
            place.files().unwrap().iter().map(|p| p.file_name().unwrap().to_string_lossy().into_owned()).collect();
        assert_eq!(found, ["libonnxruntime.so.1.31.1", "libonnxruntime.so.1.9.0", "libonnxruntime.so"]);
    }
}
