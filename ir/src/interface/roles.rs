//! Roles, and their names in text.

use std::fmt;
use std::str::FromStr;

use super::CacheEntry;

/// A text names no role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {what} that this version knows")]
pub struct UnknownRole {
    /// What it was to be, in words.
    pub(super) what: &'static str,
    /// The text.
    pub(super) text: String,
}

/// Roles without payload, their texts and what they are; the last one is the default.
macro_rules! roles {
    ($(#[$doc:meta])* $name:ident, $what:literal: $($(#[$of:meta])* $role:ident = $text:literal,)* ; $(#[$other_of:meta])* $other:ident = $other_text:literal $(; $(#[$cache_of:meta])* $cache:ident)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$of])* $role,)*
            $($(#[$cache_of])* $cache(CacheEntry),)?
            $(#[$other_of])*
            #[default]
            $other,
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$role => f.write_str($text),)*
                    $(Self::$cache(entry) => write!(f, "cache.{entry}"),)?
                    Self::$other => f.write_str($other_text),
                }
            }
        }

        impl FromStr for $name {
            type Err = UnknownRole;
            fn from_str(text: &str) -> Result<Self, UnknownRole> {
                $(if let Some(entry) = text.strip_prefix("cache.") {
                    return Ok(Self::$cache(entry.parse()?));
                })?
                match text {
                    $($text => Ok(Self::$role),)*
                    $other_text => Ok(Self::$other),
                    _ => Err(UnknownRole { what: $what, text: text.to_owned() }),
                }
            }
        }
    };
}

roles! {
    /// What a part does in a model.
    PartRole, "role of a part":
    /// Encodes what a decoder attends to.
    Encoder = "encoder",
    /// Decodes the first tokens after an encoder, without a cache.
    FirstStep = "first-step",
    /// Decodes the tokens after a cache.
    NextStep = "next-step",
    /// Makes vectors of token ids.
    Embedder = "embedder",
    /// Makes vectors of pixels.
    VisionEncoder = "vision-encoder",
    /// Makes vectors of sound.
    AudioEncoder = "audio-encoder",
    /// Makes masks of points in an image that the vision encoder has read.
    MaskDecoder = "mask-decoder",
    ;
    /// The whole model.
    Model = "model"
}

roles! {
    /// What an input is.
    InputRole, "role of an input":
    /// Ids of tokens: integers [rows, tokens], or [rows, choices, tokens] as masks, token types and positions of such a model.
    TokenIds = "token-ids",
    /// Ids of the tokens that a decoder after an encoder has read: integers [rows, tokens].
    DecoderTokenIds = "decoder-token-ids",
    /// 1 for each token of the part, cached ones included, 0 for padding: integers [rows, tokens].
    Mask = "mask",
    /// The mask of the tokens that the encoder has read: integers [rows, encoder tokens].
    EncoderMask = "encoder-mask",
    /// A mask of other tokens, or of another form.
    OtherMask = "other-mask",
    /// Which text of a pair a token is of: integers [rows, tokens].
    TokenTypes = "token-types",
    /// Positions of tokens in a row: integers [rows, tokens]; of frames, rows and columns of images [3, rows, tokens].
    Positions = "positions",
    /// Boxes around the words of tokens on a page: integers [rows, tokens, 4].
    Boxes = "boxes",
    /// A picture before it is processed: levels from 0 to 255 of red, green and blue, u8 [rows, height, width, 3].
    Image = "image",
    /// An image: floats [rows, channels, height, width], or its patches, floats [rows, patches, numbers]; or those of all images, one
    /// after the other, floats [patches, numbers].
    Pixels = "pixels",
    /// 1 where an image is, 0 where it was filled up: integers [rows, height, width], or [rows, patches].
    PixelMask = "pixel-mask",
    /// Rows and columns of the patches of each image: integers [rows, 2], or [rows, 3] with frames before them.
    PatchGrid = "patch-grid",
    /// A recording before it is processed: samples from -1 to 1 of one channel, f32 [rows, samples].
    Recording = "recording",
    /// 1 where a recording is, 0 where it was filled up: integers [rows, samples].
    RecordingMask = "recording-mask",
    /// Sound: floats [rows, samples].
    Waveform = "waveform",
    /// Features of sound over time: floats [rows, bands, frames] or [rows, frames, bands].
    Features = "features",
    /// Whether a recording is longer than its features: booleans [rows, 1].
    IsLonger = "is-longer",
    /// Vectors in place of token ids: floats [rows, tokens, features].
    Embeddings = "embeddings",
    /// What the encoder gives: floats [rows, encoder tokens, features].
    EncoderStates = "encoder-states",
    /// Points in an image, x and y in pixels: floats [rows, prompts, points, 2].
    Points = "points",
    /// What points are: 1 of an object, 0 of the background, -1 of nothing, -10 padding: integers [rows, prompts, points].
    PointLabels = "point-labels",
    /// What the vision encoder gives of the places of an image: floats [rows, features, height, width].
    ImageStates = "image-states",
    /// The positions of these places: floats [rows, features, height, width].
    ImagePositions = "image-positions",
    /// Whether a graph of both steps takes the one after a cache: a boolean.
    UseCache = "use-cache",
    ;
    /// Something else.
    Other = "other";
    /// What a step before left.
    Cache
}

roles! {
    /// What an output is.
    OutputRole, "role of an output":
    /// Scores of classes or tokens before a softmax.
    Logits = "logits",
    /// Scores of a token to be the first of an answer: floats [rows, tokens].
    StartLogits = "start-logits",
    /// Scores of a token to be the last of an answer: floats [rows, tokens].
    EndLogits = "end-logits",
    /// Vectors of all tokens: floats [rows, tokens, features].
    HiddenStates = "hidden-states",
    /// A vector of each row that a layer of the model makes: floats [rows, features].
    Pooled = "pooled",
    /// The embedding of each token by a sentence model: floats [rows, tokens, features].
    TokenEmbeddings = "token-embeddings",
    /// The weight of each token among the words of a text: floats [rows, tokens, 1].
    TokenWeights = "token-weights",
    /// The embedding of each text: floats [rows, features].
    SentenceEmbedding = "sentence-embedding",
    /// Vectors of tokens, of pixels or of sound that another part takes in place of token ids.
    Embeddings = "embeddings",
    /// Scores of labels or of pairs, such as probabilities.
    Scores = "scores",
    /// The depth of each place of an image, or its inverse: floats [rows, height, width].
    Depth = "depth",
    /// How likely each key point is at each place of an image: floats [rows, key points, height, width].
    Heatmaps = "heatmaps",
    /// Boxes of found objects: floats [rows, objects, 4].
    Boxes = "boxes",
    /// Scores of the places of found objects before a sigmoid: floats [rows, objects, height, width], or of masks of prompts
    /// [rows, prompts, masks, height, width].
    Masks = "masks",
    /// How well each mask is expected to fit: floats [rows, prompts, masks].
    MaskScores = "mask-scores",
    /// What the vision encoder gives of the places of an image: floats [rows, features, height, width].
    ImageStates = "image-states",
    /// The positions of these places: floats [rows, features, height, width].
    ImagePositions = "image-positions",
    /// Scores of each image or recording for each text: floats [images, texts].
    LogitsPerImage = "logits-per-image",
    /// Scores of each text for each image or recording: floats [texts, images].
    LogitsPerText = "logits-per-text",
    /// The vector of the voice in a recording: floats [rows, features].
    XVector = "x-vector",
    /// The embedding of each text among those of images or recordings: floats [texts, features].
    TextEmbedding = "text-embedding",
    /// The embedding of each image or recording among those of texts: floats [images, features].
    ImageEmbedding = "image-embedding",
    ;
    /// Something else.
    Other = "other";
    /// What the next step takes.
    Cache
}

roles! {
    /// What a symbol in a shape counts.
    SymbolRole, "role of a symbol":
    /// Rows of a batch.
    Rows = "rows",
    /// Tokens that a run reads.
    Tokens = "tokens",
    /// Tokens in a cache.
    Past = "past",
    /// Tokens in a cache and those that a run reads.
    PastAndTokens = "past-and-tokens",
    /// Tokens that the encoder has read.
    EncoderTokens = "encoder-tokens",
    /// Texts of a row, of which one is chosen.
    Choices = "choices",
    /// Prompts for an image.
    Prompts = "prompts",
    /// Points of a prompt.
    Points = "points",
    /// Colours of an image.
    Channels = "channels",
    /// Rows of pixels.
    Height = "height",
    /// Columns of pixels.
    Width = "width",
    /// Samples of sound.
    Samples = "samples",
    /// Frames of features of sound.
    Frames = "frames",
    ;
    /// Something else.
    Other = "other"
}

impl InputRole {
    /// Whether ids of tokens are looked up: those of the part, or of a decoder.
    #[must_use]
    pub fn is_token_ids(self) -> bool {
        matches!(self, Self::TokenIds | Self::DecoderTokenIds)
    }

    /// Whether it has a number for each token of a text of the part.
    #[must_use]
    pub fn is_of_each_token(self) -> bool {
        matches!(self, Self::TokenIds | Self::Mask | Self::TokenTypes | Self::Positions)
    }

    /// Whether it says which positions have a token.
    #[must_use]
    pub fn is_mask(self) -> bool {
        matches!(self, Self::Mask | Self::EncoderMask | Self::PixelMask | Self::RecordingMask | Self::OtherMask)
    }

    /// Whether it is of the encoder's tokens, and so the same in each step of a decoder.
    #[must_use]
    pub fn is_of_encoder(self) -> bool {
        matches!(self, Self::EncoderMask | Self::EncoderStates)
    }

    /// The cache entry that it is.
    #[must_use]
    pub fn cache(self) -> Option<CacheEntry> {
        match self {
            Self::Cache(entry) => Some(entry),
            _ => None,
        }
    }
}

impl OutputRole {
    /// The cache entry that it is.
    #[must_use]
    pub fn cache(self) -> Option<CacheEntry> {
        match self {
            Self::Cache(entry) => Some(entry),
            _ => None,
        }
    }
}
