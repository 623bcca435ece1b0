//! Compiles a checkpoint into an artifact with 8-bit weights: `cargo run --release --example compile -- CHECKPOINT FOLDER`.

use anyhow::{Result, bail};
use planish::artifact::recipe::{Precision, Recipe};
use planish::request::{Request, Silent};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [checkpoint, folder] = words.as_slice() else { bail!("give a checkpoint and a folder") };
    let request = Request { output: Some(folder.into()), force: true, ..Request::new(checkpoint) };
    let artifact = request.with(Recipe::of(Precision::Int8))?.compile(&Silent)?;
    let bytes: u64 = artifact.manifest.files.iter().map(|file| file.bytes).sum();
    println!("{}: {} in {:.1} MB", artifact.folder.display(), artifact.manifest.architecture, bytes as f64 / 1e6);
    Ok(())
}
