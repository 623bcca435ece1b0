//! The value of `--shard`.

use planish_data::Shard;

/// A shard from the text `K/N`, or from the environment for `auto`.
pub(super) fn shard(text: &str) -> Result<Shard, String> {
    Shard::parse(text).map_err(|error| error.to_string())
}
