//! A conversation with a decoder: turns of a user and of the model, whose keys and values are kept from turn to turn.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use planish_artifact::Artifact;
use planish_data::tokenizer::TextTokenizer;
use planish_models::Task;
use planish_runtimes::ort::use_huge_pages;

use super::stream::TextStream;
use super::{
    Chat, GenerateOptions, Generated, LanguageModel, Length, Message, OnPiece, Piece, Search, SearchOptions, Stop,
    check, encoder_decoder, load, ready, resume,
};

/// So many tokens have room after a conversation, or its oldest messages are left out.
const ROOM: usize = 128;

/// What was said, and the model that goes on with it.
pub struct Conversation {
    model: Box<dyn LanguageModel>,
    tokenizer: TextTokenizer,
    chat: Chat,
    searched: SearchOptions,
    stop_strings: Vec<String>,
    messages: Vec<Message>,
    /// The place of the first message of the user.
    first: usize,
    /// How long it took to load the model; told with the first answer.
    loading: Option<Duration>,
}

/// The answer to a message.
#[derive(Debug)]
pub struct Answer {
    /// What was generated, with one continuation.
    pub generated: Generated,
    /// How many of the oldest messages were left out, because the model does not take all of the conversation.
    pub left_out: usize,
}

impl Conversation {
    /// Loads an artifact for a conversation, which begins with what `options.system` says. The artifact has a tokenizer and a
    /// chat template.
    ///
    /// # Errors
    /// When the artifact is not of a decoder, has no tokenizer or chat template, or does not take a setting; when beams are
    /// asked for; and when the runtime is unavailable or does not load it.
    pub fn open(artifact: &Artifact, options: &GenerateOptions) -> Result<Self> {
        let (runtime, searched) = ready(artifact, options)?;
        if artifact.manifest.task == Some(Task::Text2TextGeneration) {
            bail!("{}", encoder_decoder::HAS_NO_CONVERSATION);
        }
        if let Search::Beams(beams) = &searched.search {
            bail!(
                "the answers of a conversation are greedy or sampled, and {} beams are asked for; add --greedy",
                beams.width
            );
        }
        if searched.continuations != NonZeroUsize::MIN {
            bail!("a conversation goes on from one answer, and `num_return_sequences` is {}", searched.continuations);
        }
        let (tokenizer, chat) = (TextTokenizer::open(&artifact.folder)?, Chat::open(&artifact.folder)?);
        // Any prompt does: those of turns are checked when they come.
        check(artifact, runtime.as_ref(), &[vec![0]], &searched.search)?;
        let start = Instant::now();
        let model = load(artifact, runtime.as_ref(), options.loading())?;
        use_huge_pages();
        let messages = options.beginning();
        let (first, stop_strings) = (messages.len(), options.config.stop_strings.clone());
        let loading = Some(start.elapsed());
        Ok(Self { model, tokenizer, chat, searched, stop_strings, messages, first, loading })
    }

    /// Answers a message of the user. The model reads only what it has not read in earlier turns. A message that fails is
    /// forgotten.
    ///
    /// # Errors
    /// When the template refuses the messages, the message alone is longer than the model takes, the model fails to run, or
    /// `on_piece` fails.
    pub fn answer(&mut self, message: &str, on_piece: OnPiece<'_>) -> Result<Answer> {
        self.messages.push(Message::user(message));
        let answer = self.answer_last(on_piece);
        if answer.is_err() {
            // The next message follows the last answer.
            self.messages.pop();
        }
        answer
    }

    /// Answers the last message.
    fn answer_last(&mut self, on_piece: OnPiece<'_>) -> Result<Answer> {
        let mut left_out = 0;
        let prompt = loop {
            let prompt = self.tokenizer.encode(&self.chat.conversation(&self.messages)?, true)?;
            let room = self.model.room(&prompt);
            let enough = match self.searched.length {
                Length::New(tokens) => tokens.get().min(ROOM),
                Length::Total(_) => 1,
            };
            if room.as_ref().is_ok_and(|room| *room >= enough) {
                break prompt;
            }
            match self.leave_out_oldest() {
                0 => {
                    room?;
                    break prompt;
                }
                messages => left_out += messages,
            }
        };
        let mut stream = TextStream::new(&self.tokenizer, &self.stop_strings);
        let mut told = |_: usize, id: i64| {
            let (text, flow) = stream.push(id)?;
            let asked = on_piece(Piece { continuation: 0, id: Some(id), text: &text })?;
            Ok(if asked.is_break() && flow.is_continue() { ControlFlow::Break(Stop::Interrupted) } else { flow })
        };
        let mut generated = resume(self.model.as_mut(), &prompt, &self.searched, &mut told)?;
        generated.loading = self.loading.take();
        if let Some(continuation) = generated.continuations.first_mut() {
            let (text, rest) = stream.finish(self.tokenizer.decode(&continuation.ids)?);
            if !rest.is_empty() {
                let _ = on_piece(Piece { continuation: 0, id: None, text: &rest })?;
            }
            self.messages.push(Message::assistant(&text));
            continuation.text = Some(text);
        }
        self.searched.seed = self.searched.seed.wrapping_add(1);
        Ok(Answer { generated, left_out })
    }

    /// Forgets the oldest message of the user with its answer, but never the last message. Returns how many messages that are.
    fn leave_out_oldest(&mut self) -> usize {
        let (before, last) = (self.messages.len(), self.messages.len() - 1);
        let answered = self.messages[self.first..].iter().position(Message::is_answer);
        if let Some(end) = answered.map(|at| self.first + at + 1).filter(|end| *end <= last) {
            self.messages.drain(self.first..end);
        }
        before - self.messages.len()
    }
}
