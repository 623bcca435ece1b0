//! Generating with an artifact, from text to text.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use planish_artifact::Artifact;
use planish_artifact::backend::{RuntimeSettings, lacks};
use planish_runtimes::Runtime;

use super::lines::{Content, Line};
use super::reader::Reader;
use super::{Generated, GenerationConfig, Loading, Message, SearchOptions, Tools, check, load};

/// What is continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompts {
    /// Texts as they stand. The artifact's tokenizer reads them, and writes what follows. The text of an image may be empty.
    Texts(Vec<String>),
    /// Messages of a user, each the first of a conversation. The artifact's chat template makes texts of them.
    Messages(Vec<String>),
    /// Token ids.
    Ids(Vec<Vec<i64>>),
}

/// How an artifact generates.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// The settings of a generation: what is searched for, and how much of it.
    pub config: GenerationConfig,
    /// What the system says before the first message of each conversation, for [`Prompts::Messages`].
    pub system: Option<String>,
    /// Files of images that each prompt comes with, where it names none of its own.
    pub images: Vec<PathBuf>,
    /// Tools that the model may call, for messages.
    pub tools: Option<Tools>,
    /// The seed of draws: continuation number n of all prompts, from 0 on, draws with the seed plus n.
    pub seed: u64,
    /// Whether keys and values of tokens are kept; else each step computes all tokens again.
    pub caching: bool,
    /// As [`Loading::prompt_chunk`](super::Loading::prompt_chunk).
    pub prompt_chunk: Option<NonZeroUsize>,
    /// Threads of the runtime; 0 leaves the number to it.
    pub threads: usize,
    /// How runtimes are found.
    pub runtime: RuntimeSettings,
}

impl GenerateOptions {
    /// The settings that an artifact comes with, as [`GenerationConfig::read`] reads them.
    ///
    /// # Errors
    /// As that.
    pub fn of(artifact: &Artifact) -> Result<Self> {
        let config = GenerationConfig::read(&artifact.folder)?;
        Ok(Self {
            config,
            system: None,
            images: Vec::new(),
            tools: None,
            seed: 0,
            caching: true,
            prompt_chunk: None,
            threads: 0,
            runtime: RuntimeSettings::default(),
        })
    }

    /// How the model is loaded.
    pub(super) fn loading(&self) -> Loading {
        let Self { threads, caching, prompt_chunk, .. } = *self;
        Loading { threads, caching, prompt_chunk, decoder_start_token: self.config.decoder_start_token }
    }

    /// The messages that come before one of the user.
    pub(super) fn beginning(&self) -> Vec<Message> {
        self.system.iter().map(|text| Message::system(text)).collect()
    }
}

/// A part of a continuation that is certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The place of its continuation among all.
    pub continuation: usize,
    /// A token; absent for text that the last token leaves.
    pub id: Option<i64>,
    /// What is new of the text: nothing while a character is incomplete, while it may be the beginning of a string that stops
    /// the text, and where prompts are ids.
    pub text: &'a str,
}

impl Prompts {
    /// A line for each, with the settings of all.
    fn lines(&self, options: &GenerateOptions) -> Vec<Line> {
        let contents: Vec<Content> = match self {
            Self::Texts(texts) => texts.iter().cloned().map(Content::Text).collect(),
            Self::Messages(messages) => messages
                .iter()
                .map(|text| Content::Messages([options.beginning(), vec![Message::user(text)]].concat()))
                .collect(),
            Self::Ids(ids) => ids.iter().cloned().map(Content::Ids).collect(),
        };
        contents.into_iter().map(Line::of).collect()
    }
}

/// Is told of each piece as soon as it is certain, and says whether the continuation goes on.
pub type OnPiece<'a> = &'a mut dyn FnMut(Piece<'_>) -> Result<ControlFlow<()>>;

/// Continues prompts with a decoder, or answers them with an encoder-decoder. All are one batch.
///
/// ```no_run
/// use std::ops::ControlFlow;
/// use std::path::Path;
///
/// use planish_artifact::Artifact;
/// use planish_generate::{GenerateOptions, Prompts, generate};
///
/// let artifact = Artifact::open(Path::new("gpt2-ort"))?;
/// let mut options = GenerateOptions::of(&artifact)?;
/// options.config.do_sample = true;
/// options.config.temperature = 0.7;
/// let prompts = Prompts::Texts(vec!["The capital of France is".to_owned()]);
/// let generated = generate(
///     &artifact,
///     &prompts,
///     &options,
///     Some(&mut |piece| {
///         print!("{}", piece.text);
///         Ok(ControlFlow::Continue(()))
///     }),
/// )?;
/// println!("\n{:.1} tokens/s", generated.tokens_per_second().unwrap_or_default());
/// # anyhow::Ok(())
/// ```
///
/// # Errors
/// When the artifact does not generate text, has no tokenizer or chat template that the prompts need, or does not take a
/// prompt or a setting; when the runtime is unavailable or fails; and when `on_piece` fails.
pub fn generate(
    artifact: &Artifact,
    prompts: &Prompts,
    options: &GenerateOptions,
    on_piece: Option<OnPiece<'_>>,
) -> Result<Generated> {
    let lines = prompts.lines(options);
    let (runtime, searched) = ready(artifact, options)?;
    let mut reader = Reader::new(artifact, options);
    let rows = lines.iter().enumerate().map(|(n, line)| reader.row(line, &searched, n)).collect::<Result<Vec<_>>>()?;
    let ids: Vec<Vec<i64>> = rows.iter().map(|row| row.request.ids.clone()).collect();
    check(artifact, runtime.as_ref(), &ids, &searched.search)?;
    let start = Instant::now();
    let mut model = load(artifact, runtime.as_ref(), options.loading())?;
    let loading = start.elapsed();
    let mut generated = reader.generate(model.as_mut(), &rows, &searched, on_piece)?;
    generated.loading = Some(loading);
    Ok(generated)
}

/// The runtime, and what the settings come to.
pub(crate) fn ready(artifact: &Artifact, options: &GenerateOptions) -> Result<(Box<dyn Runtime>, SearchOptions)> {
    let runtime = artifact.runtime(&RuntimeSettings { fast_start: true, ..options.runtime.clone() });
    match lacks(runtime.as_ref(), artifact.computes()) {
        Some(problem) => Err(problem.into()),
        None => Ok((runtime, options.config.options(options.seed)?)),
    }
}
