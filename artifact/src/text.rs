//! Members of JSON documents that are written as their texts.

use std::fmt::Display;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serializer, de};

pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

pub(crate) fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    String::deserialize(from)?.parse().map_err(de::Error::custom)
}

/// A value that may be absent. A number may stand in place of its text.
pub(crate) mod optional {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de};
    use serde_json::Value;

    pub(crate) fn serialize<T: Display, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.collect_str(value),
            None => to.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = match Value::deserialize(from)? {
            Value::Null => return Ok(None),
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            _ => return Err(de::Error::custom("expected a text or a number")),
        };
        text.parse().map(Some).map_err(de::Error::custom)
    }
}

/// A list that is one text with commas.
pub(crate) mod list {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<T: Display, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&values.iter().map(T::to_string).collect::<Vec<_>>().join(","))
    }

    pub(crate) fn deserialize<'de, T, D>(from: D) -> Result<Vec<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(from)?.split(',').map(|word| word.parse().map_err(de::Error::custom)).collect()
    }
}

/// Roles by the symbols that have them.
pub(crate) mod map {
    use std::collections::BTreeMap;

    use planish_ir::{Symbol, SymbolRole};
    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(roles: &BTreeMap<Symbol, SymbolRole>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(roles.iter().map(|(symbol, role)| (symbol.to_string(), role.to_string())))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<Symbol, SymbolRole>, D::Error> {
        let texts = BTreeMap::<String, String>::deserialize(from)?.into_iter();
        texts.map(|(symbol, role)| Ok((Symbol::new(&symbol), role.parse().map_err(de::Error::custom)?))).collect()
    }
}
