//! Finding the model that an artifact was compiled from.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use planish_artifact::Artifact;
use planish_artifact::files::{digest, resolved};
use planish_artifact::manifest::{AdapterManifest, Manifest, PartManifest, SourceManifest};
use planish_models::{Loaded, Part};

use super::SourceModel;

/// The model that an artifact was compiled from.
pub struct Found {
    /// Where it is.
    pub path: PathBuf,
    /// The model, opened.
    pub model: SourceModel,
}

impl Found {
    /// The model for the task that the artifact is for.
    ///
    /// # Errors
    /// When it cannot be loaded.
    pub fn load(&self, artifact: &Artifact) -> Result<Loaded> {
        self.model.load(artifact.manifest.load_options())
    }
}

/// Finds the model that an artifact was compiled from: among those that are `named`, or where none is, where it was then,
/// beside the artifact, in it, or in the current folder.
///
/// # Errors
/// When none of these is unchanged, and when one cannot be read.
pub fn find(named: &[PathBuf], artifact: &Artifact) -> Result<Found> {
    match named {
        [] => by_places(&artifact.folder, &artifact.manifest),
        named => among(named, &artifact.folder, &artifact.manifest),
    }
}

/// A model that an artifact is compared with.
pub struct Compared {
    /// Where it is.
    pub path: PathBuf,
    /// The model, opened.
    pub model: SourceModel,
    /// The model for the task of the artifact.
    pub loaded: Loaded,
    /// Whether the artifact was compiled from it.
    pub is_source: bool,
}

/// Finds the model that an artifact is compared with: what it was compiled from, as [`find`] does, or, where none of those that
/// are `named` is that, the first of them that has the same parts and takes the same inputs. So an artifact of a quantized
/// checkpoint is compared with the original, and an artifact of an artifact with the model of that.
///
/// # Errors
/// When there is none, and when one cannot be read.
pub fn compared(named: &[PathBuf], artifact: &Artifact) -> Result<Compared> {
    let found = match find(named, artifact) {
        Ok(found) => {
            let loaded = found.load(artifact)?;
            return Ok(Compared { path: found.path, model: found.model, loaded, is_source: true });
        }
        Err(error) => error,
    };
    for path in named {
        let Ok(model) = open_again(path, &artifact.folder, &artifact.manifest.source) else { continue };
        let Ok(loaded) = model.load(artifact.manifest.load_options()) else {
            continue;
        };
        if takes_the_same(&loaded, &artifact.manifest.parts) {
            return Ok(Compared { path: path.clone(), model, loaded, is_source: false });
        }
    }
    let why = if named.is_empty() { "" } else { "; none that is named takes the same inputs either" };
    Err(anyhow::anyhow!("{found:#}{why}"))
}

/// Whether a model has the parts of an artifact, and each takes inputs that the artifact takes too.
pub fn takes_the_same(loaded: &Loaded, parts: &[PartManifest]) -> bool {
    let has = |part: &Part| {
        let Some(own) = parts.iter().find(|own| own.name == part.name) else { return false };
        let mut names = part.graph.inputs().iter().map(|input| &part.graph.value(*input).name);
        names.all(|name| own.inputs.iter().any(|input| input.value.name == *name))
    };
    loaded.parts.len() == parts.len() && loaded.parts.iter().all(has)
}

/// The first model that is the source among those that were named.
fn among(named: &[PathBuf], artifact: &Path, manifest: &Manifest) -> Result<Found> {
    let mut others = Vec::new();
    for path in named {
        let model = open_again(path, artifact, &manifest.source)?;
        match difference(&model, manifest)? {
            None => return Ok(Found { path: path.to_owned(), model }),
            Some(file) => others.push(file.display().to_string()),
        }
    }
    bail!(
        "{} is not what the artifact {} was compiled from; name the right checkpoint with --reference",
        others.join(" or "),
        artifact.display()
    )
}

/// The first model that is the source among the places where it may be: where the recorded path leads to, in the folder that
/// contains the artifact, beside it under the recorded name, there or under that name in the current folder, or in the
/// artifact itself (linked weights).
fn by_places(artifact: &Path, manifest: &Manifest) -> Result<Found> {
    let name = &manifest.source.name;
    let absolute = artifact.canonicalize().unwrap_or_else(|_| artifact.to_owned());
    let parent = absolute.parent().unwrap_or(&absolute);
    let recorded = manifest.source.path.as_ref().map(|path| absolute.join(path));
    let recorded = recorded.map(|path| resolved(&path).unwrap_or(path));
    let places = [parent.to_owned(), parent.join(name), PathBuf::from("."), PathBuf::from(name), absolute.clone()];
    let mut looked: Vec<(PathBuf, String)> = Vec::new();
    if let Some(path) = recorded.as_ref().filter(|path| !path.exists()) {
        looked.push((path.clone(), format!("{}, where planish.json says it is, does not exist", path.display())));
    }
    // What is not there, or the same place by another name, is passed over.
    let others = places.iter().filter_map(|place| place.canonicalize().ok());
    for place in recorded.clone().filter(|path| path.exists()).into_iter().chain(others) {
        if looked.iter().any(|(path, _)| *path == place) {
            continue;
        }
        // An ONNX graph or a GGUF file goes by the name of its file, which is recorded first.
        let file = match manifest.source.files.first() {
            Some(file)
                if manifest.source.artifact.is_none()
                    && place.is_dir()
                    && SourceModel::is_file_of_model(Path::new(&file.name)) =>
            {
                place.join(&file.name)
            }
            _ => place.clone(),
        };
        let problem = match open_again(&file, artifact, &manifest.source) {
            Ok(model) => match difference(&model, manifest)? {
                None => return Ok(Found { path: file, model }),
                Some(other) if recorded.as_ref() == Some(&place) => {
                    format!("{} has changed since the artifact was compiled from it", other.display())
                }
                Some(other) => format!("{} is not what the artifact was compiled from", other.display()),
            },
            Err(error) => format!("{error:#}"),
        };
        looked.push((place, problem));
    }
    let looked: String = looked.iter().map(|(_, problem)| format!("\n  {problem}")).collect();
    bail!(
        "the checkpoint `{name}` that {} was compiled from is not found; name it with --reference, or compile again where \
         the artifact is to stay: planish.json holds the path from the one to the other; looked at:{looked}",
        artifact.display()
    )
}

/// Opens a model as it was opened for an artifact, with the adapters that were added to it then.
pub fn open_again(path: &Path, artifact: &Path, source: &SourceManifest) -> Result<SourceModel> {
    let place = |adapter: &AdapterManifest| match &adapter.path {
        Some(path) => Ok((artifact.join(path), adapter.weight)),
        None => bail!(
            "the path of an adapter is not UTF-8, so the adapter cannot be opened again; compile with a path that is"
        ),
    };
    let adapters = source.adapters.iter().map(place).collect::<Result<Vec<_>>>()?;
    SourceModel::open_with(path, &source.import)?.with_adapters(&adapters)
}

/// The first file in which a model is not what was compiled. Of weights that were linked only
/// the size is recorded.
fn difference(model: &SourceModel, manifest: &Manifest) -> Result<Option<PathBuf>> {
    let recorded = &manifest.source.files;
    let sources = model.files(manifest.task)?;
    for source in &sources {
        let Some(file) = recorded.iter().find(|file| file.name == source.name && file.bytes == source.bytes) else {
            return Ok(Some(source.path.clone()));
        };
        if file.blake3.is_some() && file.blake3 != Some(digest(&source.path)?) {
            return Ok(Some(source.path.clone()));
        }
    }
    // Each is recorded, but some of what is recorded is not there.
    Ok((sources.len() != recorded.len()).then(|| model.folder()))
}
