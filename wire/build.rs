//! Generates the Rust of `proto/*.proto`; no protoc is needed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let protos = ["proto/sandbox.proto", "proto/harness.proto"];
    for proto in protos {
        println!("cargo:rerun-if-changed={proto}");
    }
    let descriptors = protox::compile(protos, ["proto"])?;
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
