//! Generating with an artifact, from text to text.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::{Result, bail};
use planish_artifact::Artifact;
use planish_artifact::backend::{RuntimeSettings, lacks};
use planish_data::tokenizer::TextTokenizer;
use planish_runtimes::Runtime;
use planish_runtimes::ort::use_huge_pages;

use super::stream::TextStream;
use super::{Chat, Generated, GenerationConfig, Length, Loading, Message, SearchOptions, Stop, check, load, search};

/// So many new tokens are worth huge pages: each takes less time, and making the pages takes that of about a hundred.
const MANY: usize = 256;

/// What is continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prompts {
    /// Texts as they stand. The artifact's tokenizer reads them, and writes what follows.
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
    /// The seed of draws: prompt number n, from 0 on, draws with the seed plus n.
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
    /// The place of its prompt.
    pub prompt: usize,
    /// A token; absent for text that the last token leaves.
    pub id: Option<i64>,
    /// What is new of the text: nothing while a character is incomplete, while it may be the beginning of a string that stops
    /// the text, and where prompts are ids.
    pub text: &'a str,
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
    mut on_piece: Option<OnPiece<'_>>,
) -> Result<Generated> {
    let (runtime, searched) = ready(artifact, options)?;
    let (ids, tokenizer) = ids(artifact, prompts, options)?;
    let ends = &options.config.stop_strings;
    if tokenizer.is_none() && !ends.is_empty() {
        bail!(
            "prompts of token ids have no text that could end with a string of stop_strings; give --prompt, or leave \
             generation_config.json out with --set generation_config=false"
        );
    }
    check(artifact, runtime.as_ref(), &ids, &searched.search)?;
    let start = Instant::now();
    let mut model = load(artifact, runtime.as_ref(), options.loading())?;
    let loading = start.elapsed();
    let one = |_: &Vec<i64>| tokenizer.as_ref().map(|tokenizer| TextStream::new(tokenizer, ends));
    let mut streams: Vec<_> = ids.iter().map(one).collect();
    let mut is_first = matches!(searched.length, Length::New(tokens) if tokens.get() >= MANY);
    let mut told = |prompt: usize, id: i64| {
        if std::mem::take(&mut is_first) {
            use_huge_pages();
        }
        let pushed = streams[prompt].as_mut().map(|stream| stream.push(id)).transpose()?;
        let (text, flow) = pushed.unwrap_or((String::new(), ControlFlow::Continue(())));
        let asked = match &mut on_piece {
            Some(on_piece) => on_piece(Piece { prompt, id: Some(id), text: &text })?,
            None => ControlFlow::Continue(()),
        };
        Ok(if asked.is_break() && flow.is_continue() { ControlFlow::Break(Stop::Interrupted) } else { flow })
    };
    let mut generated = search(model.as_mut(), &ids, &searched, &mut told)?;
    generated.loading = Some(loading);
    let continuations = generated.continuations.iter_mut().zip(streams).enumerate();
    for (prompt, (continuation, stream)) in continuations {
        let Some((tokenizer, stream)) = tokenizer.as_ref().zip(stream) else { continue };
        let (text, rest) = stream.finish(tokenizer.decode(&continuation.ids)?);
        if let Some(on_piece) = on_piece.as_mut().filter(|_| !rest.is_empty()) {
            let _ = on_piece(Piece { prompt, id: None, text: &rest })?;
        }
        continuation.text = Some(text);
    }
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

/// The ids of prompts, and the tokenizer if they are texts.
fn ids(
    artifact: &Artifact,
    prompts: &Prompts,
    options: &GenerateOptions,
) -> Result<(Vec<Vec<i64>>, Option<TextTokenizer>)> {
    let (texts, wrapped) = match prompts {
        Prompts::Ids(ids) => return Ok((ids.clone(), None)),
        Prompts::Texts(texts) => (texts, false),
        Prompts::Messages(messages) => (messages, true),
    };
    let tokenizer = TextTokenizer::open(&artifact.folder)?;
    let chat = wrapped.then(|| Chat::open(&artifact.folder)).transpose()?;
    let encode = |text: &String| match &chat {
        Some(chat) => {
            let messages = [options.beginning(), vec![Message::user(text)]].concat();
            tokenizer.encode(&chat.conversation(&messages)?, true)
        }
        None => tokenizer.encode(text, false),
    };
    let ids = texts.iter().map(encode).collect::<Result<_>>()?;
    Ok((ids, Some(tokenizer)))
}
