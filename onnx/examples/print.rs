//! Prints an ONNX graph in the text form: `cargo run -p planish-onnx --example print -- model.onnx`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("name an ONNX file")?;
    print!("{}", planish_onnx::import(path.as_ref())?.graph);
    Ok(())
}
