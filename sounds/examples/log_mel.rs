//! Measures decoding, resampling and Whisper's features of a recording: `log_mel FILE [RUNS]`.

use std::path::Path;
use std::time::Instant;

use planish_sounds::{LogMel, Recording, SoundError};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("give a recording")?;
    let runs: u32 = arguments.next().map_or(Ok(20), |runs| runs.parse())?;
    let start = Instant::now();
    let recording = Recording::open(Path::new(&path))?;
    let rate = recording.rate();
    let mut samples = recording.samples(16_000)?;
    let mut window = samples.take_up_to(480_000)?;
    let rest = samples.try_fold(0, |count, block| Ok::<_, SoundError>(count + block?.len()))?;
    let seconds = (window.len() + rest) as f64 / 16_000.0;
    println!("{seconds:.1} s of {rate} Hz decoded and resampled in {:.3} s", start.elapsed().as_secs_f64());
    window.resize(480_000, 0.0);
    for bands in [80, 128] {
        let mel = LogMel::new(bands, 16_000, 400, 160)?;
        let features = mel.compute(&window)?;
        let start = Instant::now();
        for _ in 0..runs {
            std::hint::black_box(mel.compute(std::hint::black_box(&window))?);
        }
        let each = start.elapsed().as_secs_f64() * 1000.0 / f64::from(runs);
        println!("{bands} bands of 30 s: {} numbers in {each:.2} ms", features.len());
    }
    Ok(())
}
