//! Segments as files of text and of subtitles.

use std::fmt::{self, Write as _};
use std::path::Path;
use std::str::FromStr;

use serde::Serialize;

use super::Segment;

/// A form of what recordings say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TranscriptFormat {
    /// A segment a line.
    Text,
    /// SubRip.
    SubRip,
    /// WebVTT.
    WebVtt,
    /// All that is known of segments.
    Json,
}

/// A segment that says which recording it is of.
#[derive(Serialize)]
struct Line<'a> {
    file: String,
    #[serde(flatten)]
    segment: &'a Segment,
}

impl TranscriptFormat {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Text, Self::SubRip, Self::WebVtt, Self::Json];

    /// Whether what several recordings say can be in one such file, one after the other: times of subtitles begin anew with each.
    #[must_use]
    pub fn can_be_joined(self) -> bool {
        matches!(self, Self::Text | Self::Json)
    }

    /// How names of such files end.
    #[must_use]
    pub fn ending(self) -> &'static str {
        match self {
            Self::Text => "txt",
            Self::SubRip => "srt",
            Self::WebVtt => "vtt",
            Self::Json => "json",
        }
    }

    /// What a file begins with, but one of JSON.
    #[must_use]
    pub fn beginning(self) -> &'static str {
        if self == Self::WebVtt { "WEBVTT\n\n" } else { "" }
    }

    /// A segment of a recording as a part of such a file, which has `number` parts before it; of JSON a line of its own, which names
    /// the recording. A segment without text is none but in JSON.
    #[must_use]
    pub fn part(self, number: usize, recording: &Path, segment: &Segment) -> Option<String> {
        let Segment { start, end, text, .. } = segment;
        if self == Self::Json {
            let line = Line { file: recording.display().to_string(), segment };
            return serde_json::to_string(&line).ok().map(|line| line + "\n");
        }
        if text.is_empty() {
            return None;
        }
        // An arrow would end a subtitle's text.
        let text = text.replace("-->", "->");
        Some(match self {
            Self::SubRip => format!("{}\n{} --> {}\n{text}\n\n", number + 1, clock(*start, ','), clock(*end, ',')),
            Self::WebVtt => format!("{} --> {}\n{text}\n\n", clock(*start, '.'), clock(*end, '.')),
            _ => format!("{}\n", segment.text),
        })
    }
}

impl fmt::Display for TranscriptFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.ending())
    }
}

impl FromStr for TranscriptFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.ending() == text);
        found.ok_or_else(|| "expected txt, srt, vtt or json".to_owned())
    }
}

/// Seconds as hours, minutes, seconds and milliseconds.
fn clock(seconds: f64, point: char) -> String {
    let all = (seconds.max(0.0) * 1000.0).round() as u64;
    let [hours, minutes, seconds, rest] = [all / 3_600_000, all / 60_000 % 60, all / 1000 % 60, all % 1000];
    let mut clock = String::new();
    // Writing to a string does not fail.
    let _ = write!(clock, "{hours:02}:{minutes:02}:{seconds:02}{point}{rest:03}");
    clock
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(text: &str) -> Segment {
        Segment {
            id: 3,
            seek: Some(0),
            start: 3661.5,
            end: 3662.0,
            text: text.to_owned(),
            tokens: Some(vec![1]),
            temperature: None,
            avg_logprob: None,
            compression_ratio: None,
            no_speech_prob: None,
            words: Vec::new(),
        }
    }

    #[test]
    fn parts_have_the_form_of_their_files() {
        let of = |format: TranscriptFormat, text: &str| {
            format.part(1, Path::new("talks/a.wav"), &segment(text)).unwrap_or_default()
        };
        assert_eq!(of(TranscriptFormat::SubRip, "a --> b"), "2\n01:01:01,500 --> 01:01:02,000\na -> b\n\n");
        assert_eq!(of(TranscriptFormat::WebVtt, "a"), "01:01:01.500 --> 01:01:02.000\na\n\n");
        assert_eq!(of(TranscriptFormat::Text, "a --> b"), "a --> b\n");
        assert_eq!(of(TranscriptFormat::Text, ""), "");
        let json = r#"{"file":"talks/a.wav","id":3,"seek":0,"start":3661.5,"end":3662.0,"text":"","tokens":[1]}"#;
        assert_eq!(of(TranscriptFormat::Json, ""), format!("{json}\n"));
        assert_eq!("srt".parse(), Ok(TranscriptFormat::SubRip));
        assert!("doc".parse::<TranscriptFormat>().is_err());
    }
}
