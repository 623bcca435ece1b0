//! Kinds of operators and of attributes.

/// Defines an enum of named kinds: the operators of a family, or the choices of an attribute.
macro_rules! kinds {
    ($(#[doc = $doc:literal])* $name:ident { $($(#[doc = $vd:literal])* $variant:ident = $text:literal,)* }) => {
        $crate::named::named! {
            $(#[doc = $doc])*
            $name { $($(#[doc = $vd])* $variant = $text,)* }
        }

        impl $crate::ops::Attribute for $name {
            fn form() -> (String, bool) {
                (format!("`{}`", Self::NAMES.join("`, `")), false)
            }
            fn print(&self) -> Option<String> {
                Some(self.name().to_owned())
            }
            fn parse(text: Option<&str>) -> Result<Self, String> {
                Ok(text.ok_or("is missing")?.parse()?)
            }
            fn visit_dims(&self, _: &mut dyn FnMut(&$crate::Dim)) {}
            fn map_dims(&mut self, _: &mut dyn FnMut(&$crate::Dim) -> $crate::Dim) {}
        }
    };
}

pub(crate) use kinds;
