//! A conversation with a decoder: turns of a user and of the model, whose keys and values are kept from turn to turn.

use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use planish_artifact::Artifact;
use planish_data::tokenizer::TextTokenizer;
use planish_models::Task;
use planish_runtimes::ort::use_huge_pages;

use super::chat::CallForm;
use super::reader::find_calls;
use super::stream::TextStream;
use super::{
    Chat, Continuation, GenerateOptions, Generated, LanguageModel, Length, Message, OnPiece, Piece, Search,
    SearchOptions, Stop, check, encoder_decoder, load, ready, resume,
};

/// So many tokens have room after a conversation, or its oldest messages are left out.
const ROOM: usize = 128;

/// Who says a message, as templates name them.
const USER: &str = "user";
const TOOL: &str = "tool";

/// What was said, and the model that goes on with it.
pub struct Conversation {
    model: Box<dyn LanguageModel>,
    tokenizer: TextTokenizer,
    chat: Chat,
    /// Whether the model sees: its template then takes lists.
    sees: bool,
    searched: SearchOptions,
    stop_strings: Vec<String>,
    messages: Vec<Message>,
    /// The place of the first message of the user.
    first: usize,
    /// How the model writes calls of tools, where it has some.
    form: Option<CallForm>,
    /// How many tools were called.
    called: usize,
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
        if matches!(artifact.manifest.task, Some(Task::Text2TextGeneration | Task::ImageToText)) {
            bail!("{}", encoder_decoder::HAS_NO_CONVERSATION);
        }
        if let Search::Beams(beams) = &searched.search {
            bail!(
                "the answers of a conversation are greedy or sampled, and {} beams are asked for; add --greedy",
                beams.width
            );
        }
        if searched.continuations != NonZeroUsize::MIN {
            bail!(
                "a conversation goes on from one answer, and `num_return_sequences` is {}; add --set num_return_sequences=1",
                searched.continuations
            );
        }
        let tokenizer = TextTokenizer::open(&artifact.folder)?;
        let chat = Chat::open(&artifact.folder, options.tools.clone())?;
        let form = chat.call_form(&tokenizer)?;
        // Any prompt does: those of turns are checked when they come.
        check(artifact, runtime.as_ref(), &[vec![0]], &searched.search)?;
        let start = Instant::now();
        let model = load(artifact, runtime.as_ref(), options.loading())?;
        use_huge_pages();
        let messages = options.beginning();
        let (first, stop_strings) = (messages.len(), options.config.stop_strings.clone());
        let loading = Some(start.elapsed());
        let called = 0;
        let sees = artifact.manifest.task == Some(Task::ImageTextToText);
        Ok(Self { model, tokenizer, chat, sees, searched, stop_strings, messages, first, form, called, loading })
    }

    /// Answers a message of the user. The model reads only what it has not read in earlier turns. A message that fails is
    /// forgotten.
    ///
    /// # Errors
    /// When the template refuses the messages, the message alone is longer than the model takes, the model fails to run, or
    /// `on_piece` fails.
    pub fn answer(&mut self, message: &str, on_piece: OnPiece<'_>) -> Result<Answer> {
        self.answer_all(vec![Message::user(message)], on_piece)
    }

    /// Answers messages that come together: one of the user, or the results of tools. Results are those of the last calls, in their
    /// order, where they do not say it.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    pub fn answer_all(&mut self, mut messages: Vec<Message>, on_piece: OnPiece<'_>) -> Result<Answer> {
        let results = messages.iter_mut().filter(|message| message.role() == TOOL);
        let last = self.messages.last().map_or(0, Message::calls);
        results.enumerate().for_each(|(at, result)| result.name_call(self.called.saturating_sub(last) + at));
        let count = messages.len();
        self.messages.extend(messages);
        let answer = self.answer_last(on_piece);
        if answer.is_err() {
            // The next message follows the last answer.
            self.messages.truncate(self.messages.len() - count);
        }
        answer
    }

    /// Answers the last message.
    fn answer_last(&mut self, on_piece: OnPiece<'_>) -> Result<Answer> {
        let mut left_out = 0;
        let prompt = loop {
            let text = match self.sees {
                true => self.chat.conversation(&Message::with_images(&self.messages, 0)?)?,
                false => self.chat.conversation(&self.messages)?,
            };
            let prompt = self.tokenizer.encode(&text, true)?;
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
            continuation.text = Some(text);
            if let Some(form) = self.form {
                find_calls(continuation, form, &self.tokenizer, &self.stop_strings)?;
            }
            let Continuation { text, calls, .. } = continuation;
            self.messages.push(Message::calling(text.as_deref().unwrap_or_default(), calls, self.called));
            self.called += calls.len();
        }
        self.searched.seed = self.searched.seed.wrapping_add(1);
        Ok(Answer { generated, left_out })
    }

    /// Forgets the oldest message of the user with all that follows up to the next one, but never the last. Returns how many
    /// messages that are.
    fn leave_out_oldest(&mut self) -> usize {
        let next = self.messages.iter().skip(self.first + 1).position(|message| message.role() == USER);
        let count = next.map_or(0, |at| at + 1);
        self.messages.drain(self.first..self.first + count);
        count
    }
}
