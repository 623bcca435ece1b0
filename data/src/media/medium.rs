//! What is not text: pictures and recordings, whose files are found and read in the same way.

use std::borrow::Cow;
use std::path::Path;

use anyhow::{Result, bail};
use planish_artifact::evaluation::Unit;
use planish_artifact::manifest::Input;
use planish_eval::Tensor;
use planish_ir::InputRole;

use super::{PictureInputs, SoundInputs};

/// What files hold that are no texts and no tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    Pictures,
    Recordings,
}

impl Medium {
    /// That of a file, by the ending of its name.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        match path {
            _ if planish_pictures::is_picture(path) => Some(Self::Pictures),
            _ if planish_sounds::is_recording(path) => Some(Self::Recordings),
            _ => None,
        }
    }

    /// That which a model takes; `None` of a model of texts or of other tensors.
    pub(crate) fn taken(wanted: &[(Cow<'_, str>, &Input)]) -> Option<Self> {
        let takes = |roles: &[InputRole]| wanted.iter().any(|(_, input)| roles.contains(&input.role));
        match () {
            () if takes(&[InputRole::Pixels, InputRole::Image]) => Some(Self::Pictures),
            () if takes(&[InputRole::Recording, InputRole::Waveform, InputRole::Features]) => Some(Self::Recordings),
            () => None,
        }
    }

    /// One of it, in words.
    pub(crate) fn singular(self) -> &'static str {
        match self {
            Self::Pictures => "picture",
            Self::Recordings => "recording",
        }
    }

    /// Many of it, in words.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Pictures => "pictures",
            Self::Recordings => "recordings",
        }
    }

    pub(crate) fn unit(self) -> Unit {
        match self {
            Self::Pictures => Unit::Pictures,
            Self::Recordings => Unit::Recordings,
        }
    }
}

/// The endings of pictures and recordings, for messages.
pub(crate) fn endings() -> [String; 2] {
    let listed = |endings: &[&str]| endings.iter().map(|ending| format!(".{ending}")).collect::<Vec<_>>().join(", ");
    [listed(&planish_pictures::ENDINGS), listed(&planish_sounds::ENDINGS)]
}

/// What makes inputs of files of a medium.
pub(crate) enum MediaInputs {
    Pictures(Box<PictureInputs>),
    Recordings(Box<SoundInputs>),
}

/// A file as numbers, before it is put into a batch with others.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Prepared {
    Picture(planish_pictures::Prepared),
    Recording(planish_sounds::Prepared),
}

impl MediaInputs {
    /// For a model that takes these inputs, and files of a medium where these are known; `folder` has the settings of its processor.
    ///
    /// # Errors
    /// When the model takes no such files, or the settings are missing or not supported.
    pub(crate) fn new(wanted: &[(Cow<'_, str>, &Input)], folder: &Path, given: Option<Medium>) -> Result<Self> {
        match (Medium::taken(wanted), given) {
            (Some(taken), Some(given)) if taken != given => {
                bail!("the model takes {}, and no {}", taken.plural(), given.plural())
            }
            (Some(Medium::Recordings), _) | (None, Some(Medium::Recordings)) => {
                Ok(Self::Recordings(Box::new(SoundInputs::new(wanted, folder)?)))
            }
            _ => Ok(Self::Pictures(Box::new(PictureInputs::new(wanted, folder)?))),
        }
    }

    pub(crate) fn medium(&self) -> Medium {
        match self {
            Self::Pictures(_) => Medium::Pictures,
            Self::Recordings(_) => Medium::Recordings,
        }
    }

    /// A file as numbers.
    ///
    /// # Errors
    /// When it cannot be read, is damaged, or cannot be processed.
    pub(crate) fn read(&self, path: &Path) -> Result<Prepared> {
        match self {
            Self::Pictures(inputs) => inputs.read(path).map(Prepared::Picture),
            Self::Recordings(inputs) => inputs.read(path).map(Prepared::Recording),
        }
    }

    /// Files as inputs, a row each.
    ///
    /// # Errors
    /// When they do not fit into one batch, or are not what the model takes.
    pub(crate) fn inputs(&self, all: Vec<Prepared>) -> Result<Vec<(String, Tensor)>> {
        match self {
            Self::Pictures(inputs) => {
                let picture = |one| if let Prepared::Picture(picture) = one { Some(picture) } else { None };
                inputs.inputs(all.into_iter().filter_map(picture).collect())
            }
            Self::Recordings(inputs) => {
                let recording = |one| if let Prepared::Recording(recording) = one { Some(recording) } else { None };
                inputs.inputs(&all.into_iter().filter_map(recording).collect::<Vec<_>>())
            }
        }
    }

    /// Whether each file has a batch of its own unless told otherwise: they have other sizes, and padding would change outputs.
    pub(crate) fn takes_one(&self) -> bool {
        match self {
            Self::Pictures(inputs) => inputs.is_of_any_size(),
            Self::Recordings(inputs) => inputs.needs_one_length(),
        }
    }

    /// Whether two files may be in one batch without a change of their outputs.
    pub(crate) fn fit_together(&self, one: &Prepared, other: &Prepared) -> bool {
        match (self, one, other) {
            (Self::Pictures(_), Prepared::Picture(one), Prepared::Picture(other)) => one.size() == other.size(),
            (Self::Recordings(inputs), Prepared::Recording(one), Prepared::Recording(other)) => {
                !inputs.needs_one_length() || one.places() == other.places()
            }
            _ => false,
        }
    }
}
