//! How a data set is read.

use std::num::NonZeroUsize;

use planish_artifact::evaluation::Unit;
use planish_artifact::split::Split;

use crate::texts::FIELD;

/// How many samples are taken unless told otherwise.
pub const SAMPLES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(511);

/// How a command writes the options that say what of a file is read, for errors; those that it does not have are absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionNames {
    /// The option of [`DataOptions::field`].
    pub field: Option<&'static str>,
    /// The option of [`DataOptions::label`].
    pub label: Option<&'static str>,
    /// The option of [`DataOptions::skip_bad`].
    pub skip_bad: Option<&'static str>,
}

impl OptionNames {
    /// All of them.
    pub const ALL: Self = Self { field: Some("--field"), label: Some("--label"), skip_bad: Some("--skip-bad") };
    /// Of a command that has none.
    pub const NONE: Self = Self { field: None, label: None, skip_bad: None };
    /// Of a command that has `--field` alone of these.
    pub const FIELD: Self = Self { field: Some("--field"), ..Self::NONE };

    /// What to do where a file has no text of the name that is asked for; `part` is a member or a column.
    pub(crate) fn remedy(&self, part: &str) -> String {
        let Some(field) = self.field else { return format!("call the {part} with the text `{FIELD}`") };
        let label = self.label.map(|label| format!(", and {label} that with the label")).unwrap_or_default();
        format!("{field} names the {part} with the text{label}")
    }
}

/// How a data set is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataOptions {
    /// The member of each line's object, or the column, that contains the text; `text` where absent. Two names with a comma
    /// between them are those of the texts of a pair.
    pub field: Option<String>,
    /// The member or column with the label of the text; no labels are read where absent.
    pub label: Option<String>,
    /// The member or column that says what a record is called; none is read where absent.
    pub id: Option<IdField>,
    /// Whether blank texts are samples; they are left out otherwise.
    pub keeps_blank: bool,
    /// What one text is; lines where absent.
    pub unit: Option<Unit>,
    /// Whether bad records of texts are counted and left out; they are errors otherwise.
    pub skip_bad: bool,
    /// How many samples at most, from the beginning.
    pub samples: NonZeroUsize,
    /// How many samples a batch has; 8, or as many as the model fixes, where absent.
    pub batch: Option<NonZeroUsize>,
    /// How many tokens a text is cut to, special ones included; where absent as many as its sentence-transformers settings say,
    /// or else as the model takes, 512 at most.
    pub max_length: Option<NonZeroUsize>,
    /// Whether texts are as long as the model was made for where `max_length` says nothing, however long that is.
    pub reads_all: bool,
    /// How many tokens are taken at most, of all texts together; all where absent.
    pub tokens: Option<NonZeroUsize>,
    /// Whether who takes the batches divides them into runs: then texts may be longer than the model takes at once.
    pub is_windowed: bool,
    /// Whether who takes the batches has a decoder write a text of each recording or picture: then batches have the first id
    /// of each, and [`Batches::writing`](crate::Batches::writing) says how the others follow.
    pub own_text: bool,
    /// Which of these samples are taken.
    pub split: Split,
    /// How the user gives these options.
    pub names: OptionNames,
}

/// The member or column that says what a record is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdField {
    /// `id`, where records have it.
    Usual,
    /// The one of a name, which each record has.
    Named(String),
}

impl IdField {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Usual => "id",
            Self::Named(name) => name,
        }
    }
}

impl DataOptions {
    /// Whether a `.txt` file is one text.
    pub(crate) fn is_whole(&self) -> bool {
        self.unit == Some(Unit::Documents)
    }
}

impl Default for DataOptions {
    fn default() -> Self {
        Self {
            field: None,
            label: None,
            id: None,
            keeps_blank: false,
            unit: None,
            skip_bad: false,
            samples: SAMPLES,
            batch: None,
            max_length: None,
            reads_all: false,
            tokens: None,
            is_windowed: false,
            own_text: false,
            split: Split::All,
            names: OptionNames::ALL,
        }
    }
}
