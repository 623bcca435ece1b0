//! An encoder-decoder on a runtime: what the encoder made of prompts, and the decoder's caches.

use anyhow::{Context, Result, anyhow, bail};
use planish_data::tokenizer::token;
use planish_runtimes::{RuntimeValue, Session};

use super::cache::Cache;
use super::model::{LanguageModel, Parts, Scores, check_prompt, matrix, output};

const ENCODER: &str = "encoder_model";
const DECODER: &str = "decoder_model";
const WITH_PAST: &str = "decoder_with_past_model";

/// Why several tokens are not read in one run.
pub(super) const READS_NO_AHEAD: &str = "--prompt-lookup is for decoders, and this is an encoder-decoder; leave it out";

/// Why there is no conversation.
pub(super) const HAS_NO_CONVERSATION: &str =
    "a conversation is for decoders, and this is an encoder-decoder, which answers one prompt; give it with --prompt";

/// An encoder-decoder: the encoder reads the prompts, padded on the right, once; the text begins with
/// the decoder's start token.
pub(super) struct EncoderDecoder {
    encoder: Box<dyn Session>,
    /// Reads a text from its beginning.
    decoder: Box<dyn Session>,
    /// Reads one more token, where there is a cache.
    with_past: Option<WithPast>,
    start_token: i64,
    /// Of the prompts, then of the texts: ids are from 0 to below these.
    vocabularies: [i64; 2],
    /// How many of the scores that the decoders give are of tokens.
    scored: usize,
    /// The longest prompt and the longest text.
    longest: usize,
    /// The text of each row, all of the same length.
    rows: Vec<Vec<i64>>,
    /// The prompt of each row.
    prompts: Vec<usize>,
    /// `encoder_attention_mask` of each row.
    mask: Option<RuntimeValue>,
    /// `encoder_hidden_states` of each row; only where the keys and values of them are not cached.
    hidden: Option<RuntimeValue>,
}

/// The decoder with a cache.
struct WithPast {
    session: Box<dyn Session>,
    /// Of the text.
    own: Cache,
    /// Of the prompt: the first step gives it, and it stays.
    cross: Cache,
}

/// How many tokens may follow the start token for a prompt of an encoder with so many ids, of texts that are this long
/// at most.
pub(super) fn room(prompt: &[i64], vocabulary: i64, longest: usize) -> Result<usize> {
    check_prompt(prompt, vocabulary)?;
    if prompt.len() > longest {
        bail!("the prompt has {} tokens and the model takes {longest}; shorten it", prompt.len());
    }
    match longest.saturating_sub(1) {
        0 => bail!("the model takes no text after the decoder's start token"),
        room => Ok(room),
    }
}

impl EncoderDecoder {
    pub(super) fn load(parts: &Parts<'_>) -> Result<Self> {
        if parts.loading.prompt_chunk.is_some() {
            bail!("--prompt-chunk is for decoders: the encoder of this model reads a prompt as a whole; leave it out");
        }
        let folder = &parts.artifact.folder;
        let start_token = match parts.loading.decoder_start_token {
            Some(token) => Some(token),
            None => token(folder, "decoder_start_token_id")?,
        };
        let folder = folder.display();
        let start_token = start_token.with_context(|| {
            format!(
                "neither generation_config.json nor config.json of {folder} has `decoder_start_token_id`, which the \
                 text of an encoder-decoder begins with; add it to one of them"
            )
        })?;
        let vocabularies = [parts.vocabulary(ENCODER)?, parts.vocabulary(DECODER)?];
        if !(0..vocabularies[1]).contains(&start_token) {
            let last = vocabularies[1] - 1;
            bail!(
                "`decoder_start_token_id` {start_token} of {folder} is not in the vocabulary: ids are from 0 to {last}"
            );
        }
        let with_past = match parts.loading.caching {
            true => Some(Self::load_with_past(parts)?),
            false => None,
        };
        Ok(Self {
            encoder: parts.session(ENCODER)?,
            decoder: parts.session(DECODER)?,
            with_past,
            start_token,
            vocabularies,
            scored: parts.scored(DECODER),
            longest: parts.longest(),
            rows: Vec::new(),
            prompts: Vec::new(),
            mask: None,
            hidden: None,
        })
    }

    fn load_with_past(parts: &Parts<'_>) -> Result<WithPast> {
        if parts.find(WITH_PAST).is_none() {
            let folder = parts.artifact.folder.display();
            bail!(
                "{folder} has no {WITH_PAST}, without which each step computes all tokens again; compile the model \
                 again, or ask for that with --no-cache"
            );
        }
        let session = parts.session(WITH_PAST)?;
        let (own, cross) = (Cache::new(session.inputs(), ".decoder."), Cache::new(session.inputs(), ".encoder."));
        Ok(WithPast { session, own, cross })
    }

    /// Reads the whole text of each row.
    fn restart(&mut self) -> Result<Scores> {
        let ids = matrix(self.rows.len(), self.rows.concat())?;
        let (mask, hidden) = (kept(&self.mask)?, kept(&self.hidden)?);
        let inputs = [("input_ids", &ids), ("encoder_attention_mask", mask), ("encoder_hidden_states", hidden)];
        let mut outputs = self.decoder.run_values(&inputs)?;
        if let Some(with_past) = &mut self.with_past {
            with_past.own.update(&mut outputs)?;
            with_past.cross.update(&mut outputs)?;
            self.hidden = None;
        }
        Scores::last(&mut outputs, self.scored)
    }

    /// Keeps some of the rows. What depends on the prompt alone stays where rows only change places
    /// with others of the same prompt.
    fn take_rows(&mut self, rows: &[usize]) -> Result<()> {
        self.rows = rows.iter().map(|&row| self.rows[row].clone()).collect();
        if let Some(with_past) = &mut self.with_past {
            with_past.own.take_rows(rows)?;
        }
        let prompts: Vec<usize> = rows.iter().map(|&row| self.prompts[row]).collect();
        if prompts == self.prompts {
            return Ok(());
        }
        self.prompts = prompts;
        for value in [&mut self.mask, &mut self.hidden].into_iter().flatten() {
            *value = value.take_rows(rows).ok_or_else(|| anyhow!("the encoder did not return the rows {rows:?}"))?;
        }
        match &mut self.with_past {
            Some(with_past) => with_past.cross.take_rows(rows),
            None => Ok(()),
        }
    }
}

/// What the first step has made.
fn kept(value: &Option<RuntimeValue>) -> Result<&RuntimeValue> {
    value.as_ref().context("the encoder has read no prompts")
}

impl LanguageModel for EncoderDecoder {
    fn vocabulary(&self) -> i64 {
        self.vocabularies[1]
    }

    fn beginning(&self, _: &[i64]) -> Vec<i64> {
        vec![self.start_token]
    }

    fn room(&self, prompt: &[i64]) -> Result<usize> {
        room(prompt, self.vocabularies[0], self.longest)
    }

    fn start(&mut self, prompts: &[Vec<i64>]) -> Result<Scores> {
        let columns = prompts.iter().map(Vec::len).max().unwrap_or(0);
        // The mask hides padding: any id does.
        let padded =
            |ids: &mut dyn Iterator<Item = i64>| ids.chain(std::iter::repeat(0)).take(columns).collect::<Vec<_>>();
        let ids = prompts.iter().flat_map(|prompt| padded(&mut prompt.iter().copied())).collect();
        let mask = prompts.iter().flat_map(|prompt| padded(&mut prompt.iter().map(|_| 1))).collect();
        let (ids, mask) = (matrix(prompts.len(), ids)?, matrix(prompts.len(), mask)?);
        let mut outputs = self.encoder.run_values(&[("input_ids", &ids), ("attention_mask", &mask)])?;
        self.hidden = Some(output(&mut outputs, "last_hidden_state")?);
        self.mask = Some(mask);
        self.rows = vec![vec![self.start_token]; prompts.len()];
        self.prompts = (0..prompts.len()).collect();
        self.restart()
    }

    fn resume(&mut self, _: &[i64]) -> Result<(Scores, usize)> {
        bail!("{HAS_NO_CONVERSATION}")
    }

    fn step(&mut self, rows: &[usize], ids: &[i64]) -> Result<Scores> {
        if !rows.iter().copied().eq(0..self.rows.len()) {
            self.take_rows(rows)?;
        }
        self.rows.iter_mut().zip(ids).for_each(|(row, id)| row.push(*id));
        let Some(with_past) = &mut self.with_past else {
            return self.restart();
        };
        let ids = matrix(ids.len(), ids.to_vec())?;
        let tokens = [("input_ids", &ids), ("encoder_attention_mask", kept(&self.mask)?)];
        let cached = with_past.own.inputs().chain(with_past.cross.inputs());
        let inputs: Vec<(&str, &RuntimeValue)> = tokens.into_iter().chain(cached).collect();
        let mut outputs = with_past.session.run_values(&inputs)?;
        with_past.own.update(&mut outputs)?;
        Scores::last(&mut outputs, self.scored)
    }

    fn read(&mut self, _: &[i64]) -> Result<Scores> {
        bail!("{READS_NO_AHEAD}")
    }

    fn forget(&mut self, _: usize) -> Result<()> {
        bail!("{READS_NO_AHEAD}")
    }
}
