//! Samples in the order of the data, some at a time, for predictions.

mod pictures;
mod texts;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use planish_artifact::chain::Chain;
use planish_artifact::manifest::Input;
use planish_eval::Tensor;
use serde_json::Value;

use super::media::{Medium, no_texts};
use super::pieces::Span;
use super::texts::Text;
use super::tokenizer::TextTokenizer;
use super::tokens::Tokens;
use super::{Content, DataOptions, Dataset, TextModel};
use pictures::{From, PictureChunks};
use texts::TextChunks;

pub use texts::ChunkOptions;

/// A text, a picture or a recording that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadSample {
    /// What its record is called.
    pub id: Option<Value>,
    /// Which document of its record it is, from 0 on; absent where a record is one text.
    pub document: Option<usize>,
    /// The number of its tokens; 0 of a picture or a recording.
    pub tokens: usize,
    /// Whether it was longer, and cut.
    pub is_cut: bool,
    /// What is kept of it.
    pub kept: Option<KeptText>,
    /// The picture that it is; absent of a text or a recording.
    pub picture: Option<ReadPicture>,
}

/// A picture that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct ReadPicture {
    /// Its file.
    pub path: PathBuf,
    /// Its path below the folder that was named, or in the list.
    pub name: String,
    /// Its height and width in pixels, upright.
    pub size: [usize; 2],
}

/// A text, and its tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct KeptText {
    /// The text.
    pub text: Text,
    /// The ids of its tokens.
    pub ids: Vec<i64>,
    /// Where each token is; nothing for tokens that the tokenizer puts around the text.
    pub spans: Vec<Option<Span>>,
    /// For each token the word that begins with it.
    pub words: Vec<Option<usize>>,
}

/// Some samples as inputs of a model.
pub struct SampleBatch {
    /// Which samples of the chunk they are, a row each. The inputs may have more rows, where the model fixes their number.
    pub rows: Vec<usize>,
    /// The number of their tokens with padding, that of rows which are run only to fill a batch included; 0 of pictures.
    pub padded_tokens: usize,
    /// The inputs, complete and checked.
    pub inputs: Vec<(String, Tensor)>,
}

/// Consecutive samples of a data set.
pub struct Chunk {
    /// The number of samples before them.
    pub first: usize,
    /// The samples, in the order of the data.
    pub samples: Vec<ReadSample>,
    /// The same as inputs, the longest texts first.
    pub batches: Vec<SampleBatch>,
}

impl ReadSample {
    /// Without a picture it is a recording.
    fn of_file(id: Value, is_cut: bool, picture: Option<ReadPicture>) -> Self {
        Self { id: Some(id), document: None, tokens: 0, is_cut, kept: None, picture }
    }
}

/// What makes chunks of a data set.
pub struct Chunks<'a>(Of<'a>);

enum Of<'a> {
    Texts(Box<TextChunks<'a>>),
    Pictures(Box<PictureChunks<'a>>),
}

impl Dataset {
    /// The samples as chunks for a model; `folder` has its tokenizer, or the settings of its image processor. A model of pictures
    /// takes them, or a list of their files.
    ///
    /// # Errors
    /// When the data is tensors, the model takes no such data, or a file of the folder is missing.
    pub fn chunks<'a>(
        &'a self,
        chain: &'a Chain<'a>,
        model: TextModel,
        folder: &Path,
        options: &DataOptions,
        own: ChunkOptions,
    ) -> Result<Chunks<'a>> {
        let wanted: Vec<(Cow<'_, str>, &Input)> = chain.inputs();
        let of = match &self.content {
            Content::Tensors(_) => bail!(
                "{} contains tensors, and predictions are of texts (.txt, .jsonl, .csv or .parquet), pictures or recordings; `planish run` \
                 takes tensors",
                self.path.display()
            ),
            Content::Texts(file) if Medium::taken(&wanted).is_none() => {
                let tokens = Tokens::new(&wanted, model, folder, options).with_context(|| self.unusable())?;
                Of::Texts(Box::new(TextChunks::new(file, chain, (tokens, model.longest), own)?))
            }
            content => {
                let from = match content {
                    Content::Pictures(files) => From::Files(files),
                    Content::Texts(file) => {
                        if let Some(medium) = Medium::taken(&wanted) {
                            no_texts(&self.path, medium, options)?;
                        }
                        From::List(file)
                    }
                    Content::Tensors(_) => bail!("tensors are no pictures"),
                };
                let chunks = PictureChunks::new(from, chain, folder, options, own);
                Of::Pictures(Box::new(chunks.with_context(|| self.unusable())?))
            }
        };
        Ok(Chunks(of))
    }
}

impl Chunks<'_> {
    /// The most tokens of a text; absent where the samples are pictures.
    pub fn longest(&self) -> Option<usize> {
        if let Of::Texts(texts) = &self.0 { Some(texts.longest()) } else { None }
    }

    /// What texts are tokenized with; absent where the samples are pictures.
    pub fn tokenizer(&self) -> Option<&TextTokenizer> {
        if let Of::Texts(texts) = &self.0 { Some(texts.tokenizer()) } else { None }
    }

    /// Whether padding comes before the tokens.
    pub fn is_left(&self) -> bool {
        matches!(&self.0, Of::Texts(texts) if texts.is_left())
    }

    /// Reads the data from its beginning and passes each chunk to `take`, until that says that it takes no more.
    ///
    /// # Errors
    /// When the data has a bad record or none, or the tokenizer fails.
    pub fn read(&self, mut take: impl FnMut(Chunk) -> bool) -> Result<()> {
        match &self.0 {
            Of::Texts(texts) => texts.read(&mut take),
            Of::Pictures(pictures) => pictures.read(&mut take),
        }
    }
}
