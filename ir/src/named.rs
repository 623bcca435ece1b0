//! Enums whose variants have names in the text form.

/// Defines an enum with a name for each variant, by which it is printed and read.
macro_rules! named {
    ($(#[doc = $doc:literal])* $name:ident { $($(#[doc = $vd:literal])* $variant:ident = $text:literal,)* }) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[doc = $vd])* $variant,)* }

        impl $name {
            /// Every variant.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
            /// The names, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($text,)*];
            /// What they are, in the same order.
            pub const DOCS: &'static [&'static str] = &[$(concat!($($vd,)*),)*];

            /// The name in the text form.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::SpellingError;
            fn from_str(text: &str) -> Result<Self, $crate::SpellingError> {
                match text {
                    $($text => Ok($name::$variant),)*
                    _ => Err($crate::SpellingError::Name { text: text.to_owned(), names: Self::NAMES }),
                }
            }
        }
    };
}

pub(crate) use named;
