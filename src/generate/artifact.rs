//! Generating with an artifact, from text to text.

use std::num::NonZeroUsize;

use anyhow::Result;

use super::{Chat, Generated, GenerationConfig, Loading, TextTokenizer, check, load, search};
use crate::artifact::Artifact;
use crate::backend::{RuntimeSettings, lacks};

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
        Ok(Self { config, seed: 0, caching: true, prompt_chunk: None, threads: 0, runtime: RuntimeSettings::default() })
    }
}

/// Is told of each token as soon as it is certain: the place of its prompt, its id, and what it adds to the text, which is
/// nothing while a character is incomplete and where prompts are ids.
pub type OnToken<'a> = &'a mut dyn FnMut(usize, i64, &str) -> Result<()>;

impl Artifact {
    /// Continues prompts with a decoder, or answers them with an encoder-decoder. All are one batch.
    ///
    /// ```no_run
    /// use std::path::Path;
    ///
    /// use planish::artifact::Artifact;
    /// use planish::generate::{GenerateOptions, Prompts};
    ///
    /// let artifact = Artifact::open(Path::new("gpt2-ort"))?;
    /// let mut options = GenerateOptions::of(&artifact)?;
    /// options.config.do_sample = true;
    /// options.config.temperature = 0.7;
    /// let prompts = Prompts::Texts(vec!["The capital of France is".to_owned()]);
    /// let generated = artifact.generate(
    ///     &prompts,
    ///     &options,
    ///     Some(&mut |_prompt, _id, text| {
    ///         print!("{text}");
    ///         Ok(())
    ///     }),
    /// )?;
    /// println!("\n{:.1} tokens/s", generated.tokens_per_second());
    /// # anyhow::Ok(())
    /// ```
    ///
    /// # Errors
    /// When the artifact does not generate text, has no tokenizer or chat template that the prompts need, or does not take a
    /// prompt or a setting; when the runtime is unavailable or fails; and when `on_token` fails.
    pub fn generate(
        &self,
        prompts: &Prompts,
        options: &GenerateOptions,
        mut on_token: Option<OnToken<'_>>,
    ) -> Result<Generated> {
        let runtime = self.runtime(&options.runtime);
        if let Some(problem) = lacks(runtime.as_ref(), self.computes()) {
            return Err(problem.into());
        }
        let searched = options.config.options(options.seed)?;
        let (ids, tokenizer) = self.ids(prompts)?;
        check(self, runtime.as_ref(), &ids, &searched.search)?;
        let GenerateOptions { threads, caching, prompt_chunk, .. } = *options;
        let decoder_start_token = options.config.decoder_start_token;
        let loading = Loading { threads, caching, prompt_chunk, decoder_start_token };
        let mut model = load(self, runtime.as_ref(), loading)?;
        let one = |_: &Vec<i64>| tokenizer.as_ref().map(TextTokenizer::stream);
        let mut streams: Vec<_> = ids.iter().map(one).collect();
        let mut told = |prompt: usize, id: i64| match &mut on_token {
            Some(on_token) => {
                let piece = streams[prompt].as_mut().map(|stream| stream(id)).transpose()?;
                on_token(prompt, id, &piece.unwrap_or_default())
            }
            None => Ok(()),
        };
        let mut generated = search(model.as_mut(), &ids, &searched, &mut told)?;
        if let Some(tokenizer) = &tokenizer {
            for continuation in &mut generated.continuations {
                continuation.text = Some(tokenizer.decode(&continuation.ids)?);
            }
        }
        Ok(generated)
    }

    /// The ids of prompts, and the tokenizer if they are texts.
    fn ids(&self, prompts: &Prompts) -> Result<(Vec<Vec<i64>>, Option<TextTokenizer>)> {
        let (texts, wrapped) = match prompts {
            Prompts::Ids(ids) => return Ok((ids.clone(), None)),
            Prompts::Texts(texts) => (texts, false),
            Prompts::Messages(messages) => (messages, true),
        };
        let tokenizer = TextTokenizer::open(&self.folder)?;
        let chat = wrapped.then(|| Chat::open(&self.folder)).transpose()?;
        let encode = |text: &String| match &chat {
            Some(chat) => tokenizer.encode(&chat.prompt(text)?, true),
            None => tokenizer.encode(text, false),
        };
        let ids = texts.iter().map(encode).collect::<Result<_>>()?;
        Ok((ids, Some(tokenizer)))
    }
}
