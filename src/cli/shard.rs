//! The value of `--shard`, and the files of all shards.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use planish_data::Shard;

/// A shard from the text `K/N`, or from the environment for `auto`.
pub(super) fn shard(text: &str) -> Result<Shard, String> {
    Shard::parse(text).map_err(|error| error.to_string())
}

/// What the files of all shards come to, which are read and joined one after the other.
pub(super) fn merged<T>(
    paths: &[PathBuf],
    read: impl Fn(&Path) -> Result<T>,
    join: impl Fn(T, T) -> Result<T>,
) -> Result<T> {
    let (first, others) = paths.split_first().context("there is no file to merge")?;
    others.iter().try_fold(read(first)?, |all, path| {
        join(all, read(path)?).with_context(|| format!("cannot merge {} with the files before it", path.display()))
    })
}
