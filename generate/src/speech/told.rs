//! What observers are told of recordings: segments in their order, whichever of the stretches of a recording is done first.

use std::collections::BTreeMap;

use anyhow::Result;

use super::settings::Settings;
use super::{Segment, TranscribeObserver, Transcribed};

/// What is known of a recording that is being transcribed.
#[derive(Default)]
pub(super) struct Told {
    /// How long it is.
    pub(super) seconds: f64,
    /// The token of the language, once it is known.
    pub(super) language: Option<i64>,
    /// The stretch whose segments are told at once.
    front: usize,
    /// Those after it, by their places.
    later: BTreeMap<usize, Later>,
    segments: usize,
    /// The frames that are done.
    frames: usize,
}

/// A stretch that waits for those before it.
#[derive(Default)]
struct Later {
    segments: Vec<Segment>,
    is_over: bool,
    is_last: bool,
}

/// All recordings, by their numbers.
pub(super) struct AllTold<'a> {
    observer: &'a dyn TranscribeObserver,
    of: BTreeMap<usize, Told>,
}

impl<'a> AllTold<'a> {
    pub(super) fn new(observer: &'a dyn TranscribeObserver) -> Self {
        Self { observer, of: BTreeMap::new() }
    }

    /// The observer.
    pub(super) fn observer(&self) -> &'a dyn TranscribeObserver {
        self.observer
    }

    /// A recording; a new one where it was not known.
    pub(super) fn of(&mut self, recording: usize) -> &mut Told {
        self.of.entry(recording).or_default()
    }

    /// A segment of a stretch is done.
    ///
    /// # Errors
    /// Those of the observer.
    pub(super) fn segment(&mut self, recording: usize, place: usize, segment: Segment) -> Result<()> {
        let observer = self.observer;
        let told = self.of(recording);
        if place == told.front {
            return told.tell(recording, segment, observer);
        }
        told.later.entry(place).or_default().segments.push(segment);
        Ok(())
    }

    /// So many frames more are done.
    ///
    /// # Errors
    /// Those of the observer.
    pub(super) fn progress(&mut self, recording: usize, frames: usize) -> Result<()> {
        let told = self.of(recording);
        told.frames += frames;
        // Frames of 10 ms.
        let seconds = (told.frames as f64 / 100.0).min(told.seconds);
        self.observer.progress(recording, seconds)
    }

    /// A stretch is over.
    ///
    /// # Errors
    /// Those of the observer.
    pub(super) fn over(&mut self, recording: usize, place: usize, is_last: bool, settings: &Settings) -> Result<()> {
        let observer = self.observer;
        let told = self.of(recording);
        let later = told.later.entry(place).or_default();
        (later.is_over, later.is_last) = (true, is_last);
        while let Some(later) = told.later.get_mut(&told.front) {
            let (segments, is_over, is_last) = (std::mem::take(&mut later.segments), later.is_over, later.is_last);
            segments.into_iter().try_for_each(|segment| told.tell(recording, segment, observer))?;
            if !is_over {
                break;
            }
            told.later.remove(&told.front);
            told.front += 1;
            if is_last {
                let language = told.language.and_then(|id| settings.code(id)).map(str::to_owned);
                observer.ended(recording, Transcribed { language, seconds: told.seconds })?;
                self.of.remove(&recording);
                break;
            }
        }
        Ok(())
    }
}

impl Told {
    fn tell(&mut self, recording: usize, segment: Segment, observer: &dyn TranscribeObserver) -> Result<()> {
        let segment = Segment { id: self.segments, ..segment };
        self.segments += 1;
        observer.segment(recording, &segment)
    }
}
