//! The conversation of `planish generate --chat`.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;

use anyhow::Result;
use planish_artifact::Artifact;
use planish_generate::{Conversation, GenerateOptions, Piece, Stop};

use super::generate::{document, show, speed_text};
use super::terminal::progress;
use super::typed::read_line;
use super::{note, print, print_json, signals};

/// How many tokens an answer gets at most where nothing says it.
const ANSWER: NonZeroUsize = NonZeroUsize::MIN.saturating_add(1023);

/// What a person sees where a message is expected.
const SIGN: &str = "> ";

/// Answers lines of standard input until it ends.
pub(super) fn converse(artifact: &Artifact, mut options: GenerateOptions, json: bool) -> Result<()> {
    let config = &mut options.config;
    if config.max_new_tokens.is_none() && config.max_length.is_none() {
        config.max_new_tokens = Some(ANSWER);
    }
    let mut conversation = Conversation::open(artifact, &options)?;
    let is_person = stdin().is_terminal();
    let tell = |text: &str| {
        if is_person {
            // Standard error may be closed; the answers are what counts.
            let _ = write!(stderr(), "{text}");
        }
    };
    loop {
        tell(SIGN);
        let Some(message) = read_line()? else { break };
        if message.trim().is_empty() {
            continue;
        }
        // The first Ctrl-C stops the answer, another one before it has stopped ends the command.
        signals::finish_at_interrupt();
        let mut on_piece = |piece: Piece<'_>| {
            if !json {
                show(piece.text)?;
            }
            Ok(if signals::asked_to_finish() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        let answer = conversation.answer(&message, &mut on_piece)?;
        signals::end_at_interrupt();
        if answer.left_out > 0 {
            note(&format!(
                "the {} oldest messages are left out from now on, because the model does not take all of the conversation",
                answer.left_out
            ));
        }
        if json {
            print_json(&document(&answer.generated))?;
            continue;
        }
        print("\n")?;
        if is_person {
            progress(&speed_text(&answer.generated));
        }
        match answer.generated.continuations.first().map(|continuation| continuation.stop) {
            Some(Stop::MaxNewTokens) => tell("the answer is as long as --max-new-tokens allows\n"),
            Some(Stop::Context) => note("the answer stopped, because the conversation is as long as the model takes"),
            _ => {}
        }
    }
    tell("\n");
    Ok(())
}
