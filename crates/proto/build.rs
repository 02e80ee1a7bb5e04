//! Compiles the protocol with protox, so that no `protoc` is needed.

use std::path::PathBuf;

use protox::prost::Message;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    let files = ["common", "verify", "draft", "generate"].map(|name| format!("foretoken/v1/{name}.proto"));
    println!("cargo:rerun-if-changed={}", root.display());
    let descriptors = protox::compile(files, [root])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("foretoken_descriptor.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().bytes(".foretoken.v1").compile_fds(descriptors)?;
    Ok(())
}
