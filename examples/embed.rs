//! Prints the vector of each line of a file as a line of JSON: `cargo run --release --example embed -- ARTIFACT TEXTS`.

use std::path::Path;

use anyhow::{Result, bail};
use planish::artifact::Artifact;
use planish::predict::{Output, PredictOptions, Silent, predict};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [artifact, texts] = words.as_slice() else { bail!("give an artifact and a file of texts") };
    let artifact = Artifact::open(Path::new(artifact))?;
    let mut print = |line: &str| {
        print!("{line}");
        Ok(())
    };
    let done = predict(&artifact, Path::new(texts), Output::Lines(&mut print), &PredictOptions::default(), &Silent)?;
    eprintln!("{} texts in {:.2} s", done.texts, done.seconds);
    Ok(())
}
