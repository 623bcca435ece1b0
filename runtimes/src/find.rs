//! Where the shared libraries of runtimes are looked for.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Unavailable;

/// A shared library that a runtime loads.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SharedLibrary {
    /// What it is a library of.
    pub(crate) product: &'static str,
    /// The option that names its file or folder.
    pub(crate) option: &'static str,
    /// The environment variable that does.
    pub(crate) variable: &'static str,
    /// What wheels and releases call the file, with or without a version after it.
    pub(crate) file: &'static str,
    /// Its folder below `.deps`.
    pub(crate) folder: &'static str,
    /// Its folders in a Python environment, below `site-packages`: what wheels name them.
    pub(crate) packages: &'static [&'static str],
    /// The names that the system's loader is asked for.
    pub(crate) system: &'static [&'static str],
}

/// What decides where to look.
pub(crate) struct Search {
    /// What is looked for.
    pub(crate) library: &'static SharedLibrary,
    /// From the option.
    pub(crate) option: Option<PathBuf>,
    /// From the environment.
    pub(crate) variable: Option<PathBuf>,
    /// The program's file.
    pub(crate) program: Option<PathBuf>,
    /// The current folder.
    pub(crate) folder: Option<PathBuf>,
    /// The roots of the active Python environments: of venv, and of conda.
    pub(crate) environments: Vec<PathBuf>,
}

/// By which rule a candidate was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Option,
    Variable,
    BesideProgram,
    /// The Python environment that the program was installed into.
    Installed,
    Deps,
    /// The active Python environment.
    Active,
    System,
}

/// A place to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) library: &'static SharedLibrary,
    pub(crate) rule: Rule,
    /// A file, a folder, or for the system's loader a bare file name.
    pub(crate) path: PathBuf,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path.display(), self.rule())
    }
}

impl Search {
    /// As this process was started.
    pub(crate) fn of_process(library: &'static SharedLibrary, option: Option<PathBuf>) -> Self {
        Self {
            library,
            option,
            variable: std::env::var_os(library.variable).filter(|value| !value.is_empty()).map(PathBuf::from),
            program: std::env::current_exe().ok(),
            folder: std::env::current_dir().ok(),
            environments: ["VIRTUAL_ENV", "CONDA_PREFIX"]
                .into_iter()
                .filter_map(|variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from))
                .collect(),
        }
    }

    /// The places in order. A library that was named is the only place: a user who names one
    /// does not want another.
    pub(crate) fn places(&self) -> Vec<Place> {
        let library = self.library;
        let place = |rule, path: &Path| Place { library, rule, path: path.to_owned() };
        if let Some(path) = &self.option {
            return vec![place(Rule::Option, path)];
        }
        if let Some(path) = &self.variable {
            return vec![place(Rule::Variable, path)];
        }
        let program = self.program.as_deref().and_then(Path::parent);
        let mut places = Vec::new();
        places.extend(program.map(|folder| place(Rule::BesideProgram, folder)));
        let in_environment =
            |rule, root: &Path| packages(root, library).into_iter().map(move |path| place(rule, &path));
        // `bin` of an environment has the programs of its packages.
        let root = program.filter(|folder| folder.file_name().is_some_and(|name| name == "bin")).and_then(Path::parent);
        places.extend(root.into_iter().flat_map(|root| in_environment(Rule::Installed, root)));
        for start in [self.folder.as_deref(), program].into_iter().flatten() {
            for folder in start.ancestors().map(|folder| folder.join(".deps")).filter(|deps| deps.is_dir()) {
                for path in [folder.join(library.folder), folder] {
                    let place = place(Rule::Deps, &path);
                    if !places.contains(&place) {
                        places.push(place);
                    }
                }
            }
        }
        for root in &self.environments {
            for new in in_environment(Rule::Active, root) {
                if places.iter().all(|place| place.path != new.path) {
                    places.push(new);
                }
            }
        }
        // The loader knows LD_LIBRARY_PATH, its cache and the usual folders.
        places.extend(library.system.iter().map(|name| place(Rule::System, name.as_ref())));
        places
    }
}

impl Search {
    /// What a function makes of the first file that it can use.
    ///
    /// # Errors
    /// Every place that was looked at, with what was found there.
    pub(crate) fn first<T>(
        &self,
        mut usable: impl FnMut(&Path, &Place) -> Result<T, String>,
    ) -> Result<T, Vec<String>> {
        let mut looked = Vec::new();
        for place in self.places() {
            let mut note =
                |path: &Path, what: &str| looked.push(format!("{} ({}): {what}", path.display(), place.rule()));
            match place.files() {
                Err(reason) => note(&place.path, &reason),
                Ok(files) => {
                    for path in files {
                        match usable(&path, &place) {
                            Ok(found) => return Ok(found),
                            Err(reason) => note(&path, &reason),
                        }
                    }
                }
            }
        }
        Err(looked)
    }

    /// Whether a library that is loaded is the one that is named now, if one is; else where it is and the place that was
    /// named.
    ///
    /// # Errors
    /// Why another one cannot be loaded. The name of the runtime is left to the caller.
    pub(crate) fn agrees(&self, loaded: &Path) -> Result<(), Unavailable> {
        let Some(place) = self.places().into_iter().find(|p| matches!(p.rule, Rule::Option | Rule::Variable)) else {
            return Ok(());
        };
        let same = |file: PathBuf| file.canonicalize().is_ok_and(|file| loaded.canonicalize().is_ok_and(|l| l == file));
        if place.files().is_ok_and(|files| files.into_iter().any(same)) {
            return Ok(());
        }
        Err(Unavailable {
            runtime: "",
            reason: format!("this process has already loaded {}", loaded.display()),
            looked: vec![place.to_string()],
            remedy: format!("use one {} in a process", self.library.product),
        })
    }
}

impl Place {
    /// By which rule it was found, for messages.
    pub(crate) fn rule(&self) -> &'static str {
        match self.rule {
            Rule::Option => self.library.option,
            Rule::Variable => self.library.variable,
            Rule::BesideProgram => "beside the program",
            Rule::Installed => "the Python environment of planish",
            Rule::Deps => ".deps",
            Rule::Active => "the active Python environment",
            Rule::System => "the system's loader",
        }
    }

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
            .filter_map(|entry| Some((self.library.version_of(entry.file_name().to_str()?)?, entry.path())))
            .collect();
        if found.is_empty() {
            return Err(format!("no {}", self.library.file));
        }
        found.sort();
        Ok(found.into_iter().rev().map(|(_, path)| std::path::absolute(&path).unwrap_or(path)).collect())
    }
}

impl SharedLibrary {
    /// The version in the name of a file of it, empty for none; `None` for other files.
    fn version_of(&self, name: &str) -> Option<Vec<u32>> {
        match name.strip_prefix(self.file)? {
            "" => Some(Vec::new()),
            rest => rest.strip_prefix('.')?.split('.').map(|part| part.parse().ok()).collect(),
        }
    }
}

/// The folders of a library in the Python environment at `root`, those that are there: `lib/python3.12/site-packages/onnxruntime/capi`.
/// Debian's pip installs into `local/lib` and `dist-packages`, and other systems have platform packages in `lib64`.
fn packages(root: &Path, library: &SharedLibrary) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for folder in ["lib", "lib64", "local/lib"] {
        let entries = std::fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
        let mut versions: Vec<PathBuf> = entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
            .map(|entry| entry.path())
            .collect();
        versions.sort();
        for version in versions {
            for site in ["site-packages", "dist-packages"] {
                found.extend(library.packages.iter().map(|package| version.join(site).join(package)));
            }
        }
    }
    found.retain(|path| path.is_dir());
    // `lib64` is often a link to `lib`.
    let mut seen = Vec::new();
    found.retain(|path| {
        let real = path.canonicalize().unwrap_or_else(|_| path.clone());
        let new = !seen.contains(&real);
        seen.push(real);
        new
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    static ORT: &SharedLibrary = &crate::ort::LIBRARY;

    fn rules(search: &Search) -> Vec<Rule> {
        search.places().iter().map(|place| place.rule).collect()
    }

    #[test]
    fn a_named_library_is_the_only_place() {
        let mut search = Search {
            library: ORT,
            option: Some("a.so".into()),
            variable: Some("b.so".into()),
            program: Some("/nowhere/bin/planish".into()),
            folder: None,
            environments: Vec::new(),
        };
        assert_eq!(search.places(), [Place { library: ORT, rule: Rule::Option, path: "a.so".into() }]);
        search.option = None;
        assert_eq!(search.places(), [Place { library: ORT, rule: Rule::Variable, path: "b.so".into() }]);
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
        let search = Search {
            library: ORT,
            option: None,
            variable: None,
            program: Some(bin.join("planish")),
            folder: Some(here.clone()),
            environments: Vec::new(),
        };
        let deps: Vec<PathBuf> = search.places().into_iter().filter(|p| p.rule == Rule::Deps).map(|p| p.path).collect();
        let expected = ["here/.deps/onnxruntime", "here/.deps", "there/.deps/onnxruntime", "there/.deps"];
        assert_eq!(deps, expected.map(|path| root.path().join(path)));
    }

    #[test]
    fn python_environments_are_searched() {
        let root = tempfile::tempdir().unwrap();
        let of = |name: &str| root.path().join(name);
        let capi = "lib/python3.12/site-packages/onnxruntime/capi";
        for folder in ["own/bin", "active/bin", "empty/lib/python3.12/site-packages"] {
            std::fs::create_dir_all(of(folder)).unwrap();
        }
        for name in ["own", "active"] {
            std::fs::create_dir_all(of(name).join(capi)).unwrap();
            std::os::unix::fs::symlink("lib", of(name).join("lib64")).unwrap();
        }
        let mut search = Search {
            library: ORT,
            option: None,
            variable: None,
            program: Some(of("own/bin/planish")),
            folder: None,
            environments: vec![of("active"), of("empty"), of("nowhere")],
        };
        let python = |search: &Search| -> Vec<(Rule, PathBuf)> {
            let of_python = |place: &Place| matches!(place.rule, Rule::Installed | Rule::Active);
            search.places().into_iter().filter(of_python).map(|place| (place.rule, place.path)).collect()
        };
        let (own, active) = (of("own").join(capi), of("active").join(capi));
        assert_eq!(python(&search), [(Rule::Installed, own.clone()), (Rule::Active, active)]);
        search.environments = vec![of("own")];
        assert_eq!(python(&search), [(Rule::Installed, own)]);
        search.program = Some(of("own/planish"));
        search.environments.clear();
        assert_eq!(python(&search), []);
    }

    #[test]
    fn the_newest_version_of_a_folder_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place { library: ORT, rule: Rule::Deps, path: folder.path().to_owned() };
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
